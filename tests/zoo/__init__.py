"""The zoo: small models, usual and odd, each ready to train. `SPECIMENS` maps a name to the factory of that name.

Import as `from zoo import SPECIMENS`; a factory returns a new `Specimen` of the same bits at each call.
"""

from __future__ import annotations

from collections.abc import Callable

from zoo.attention import checkpointed, tied_gpt, transformer_encoder
from zoo.dense import (
    containers,
    conv_batchnorm,
    dropout,
    inplace_residual,
    lstm,
    mlp,
    nested_200,
    shared_module,
)
from zoo.odd_parameters import bf16, complex_parameter, lazy, sparse_embedding, weight_normalised, zero_size_parameter
from zoo.partly_trained import frozen_encoder_with_prompt, frozen_prefix, lora, under_no_grad, unused_branch
from zoo.specimen import Batch, Loss, Specimen

__all__ = ["SPECIMENS", "Batch", "Loss", "Specimen"]

SPECIMENS: dict[str, Callable[[], Specimen]] = {
    factory.__name__: factory
    for factory in (
        mlp,
        conv_batchnorm,
        dropout,
        tied_gpt,
        unused_branch,
        frozen_encoder_with_prompt,
        lora,
        frozen_prefix,
        shared_module,
        containers,
        weight_normalised,
        sparse_embedding,
        complex_parameter,
        zero_size_parameter,
        lazy,
        bf16,
        nested_200,
        under_no_grad,
        checkpointed,
        transformer_encoder,
        lstm,
        inplace_residual,
    )
}
