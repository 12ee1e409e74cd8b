"""Shared by all tests. Its being here also lets them import the modules that lie beside it."""
