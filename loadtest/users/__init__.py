"""Locust users: who sends what, and when."""
