"""What gradtui needs of Python and the operating system, and other parts share: files, descriptors, frames, plain text."""
