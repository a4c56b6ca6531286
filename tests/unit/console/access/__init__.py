"""Tests of who may see and change what in the console."""
