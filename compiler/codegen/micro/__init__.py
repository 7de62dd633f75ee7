"""Micro-kernels as C++ headers; this package only makes them findable as data files."""
