"""The run's modules, parameters and optimizers.

This package owns discovery, the module tree and its listings, parameter groups, and which optimizer has which parameter.
Other packages refer to modules and parameters by their index in a `ModuleTree`.
"""

from gradtui.probe.model import optimizer_membership, running_module
from gradtui.probe.model.added_parameters import AddedParameters, Waiting, joined_words, left_words
from gradtui.probe.model.held_objects import Held, held_objects, is_of_script_class, locals_of
from gradtui.probe.model.index_mapping import IndexMapping
from gradtui.probe.model.model_registry import ModelRegistry
from gradtui.probe.model.module_tree import Leaf, Lineage, ModuleTree, is_same_model, memory_of
from gradtui.probe.model.optimizer_membership import Owners
from gradtui.probe.model.own_rates import Guard, OwnRate, ParamGroup
from gradtui.probe.model.param_groups import read_groups
from gradtui.probe.model.running_module import is_constructing, nearest_leaf
from gradtui.probe.model.storages import StorageCount, bucket_bytes, buffers_of, direct_tensors, state_tensors

__all__ = [
    "AddedParameters",
    "Guard",
    "Held",
    "IndexMapping",
    "Leaf",
    "Lineage",
    "ModelRegistry",
    "ModuleTree",
    "OwnRate",
    "Owners",
    "ParamGroup",
    "StorageCount",
    "Waiting",
    "bucket_bytes",
    "buffers_of",
    "direct_tensors",
    "held_objects",
    "is_constructing",
    "is_of_script_class",
    "is_same_model",
    "joined_words",
    "left_words",
    "locals_of",
    "memory_of",
    "nearest_leaf",
    "optimizer_membership",
    "read_groups",
    "running_module",
    "state_tensors",
]
