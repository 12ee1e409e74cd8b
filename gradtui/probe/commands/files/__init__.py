"""What commands write to files: checkpoints, kept states, batches and the allocator's snapshot."""
