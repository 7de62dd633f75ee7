"""Source from tile programs: one printer a language over shared expression rules, and micro-kernels as
files.
"""
