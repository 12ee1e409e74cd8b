"""Activation checkpointing on command, and how all ranks decide on it."""
