"""Observe and change live torch objects. Modules run on the training thread unless they say otherwise."""
