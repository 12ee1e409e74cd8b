"""What tests of several packages build: examples, states, training. Each builder says what it returns."""
