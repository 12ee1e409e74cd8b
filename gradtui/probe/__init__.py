"""All that touches live torch objects. Runs on the training thread unless a module says otherwise."""
