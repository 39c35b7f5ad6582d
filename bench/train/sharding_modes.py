"""The ways in which data-parallel ranks share a model's state, as fields of spec.parallelism."""
import collections

# fields: of spec.parallelism; by_node: four ranks and more are on two nodes.
Mode = collections.namedtuple("Mode", "fields by_node", defaults=(False,))

MODES = {
    "none": Mode({}),
    "optimizer": Mode({"sharding": "optimizer"}),
    "gradients": Mode({"sharding": "gradients"}),
    "parameters": Mode({"sharding": "parameters"}),
    "parameters, kept": Mode({"sharding": "parameters", "reshardAfterForward": False}),
    "parameters, no prefetch": Mode({"sharding": "parameters", "prefetch": False}),
    "optimizer, by node": Mode({"sharding": "optimizer", "shardingGroup": "node"}, True),
    "gradients, by node": Mode({"sharding": "gradients", "shardingGroup": "node"}, True),
    "parameters, by node": Mode({"sharding": "parameters", "shardingGroup": "node"}, True),
    "optimizer, offloaded": Mode({"sharding": "optimizer", "offload": "optimizer"}),
    "parameters, optimizer offloaded": Mode({"sharding": "parameters", "offload": "optimizer"}),
    "parameters, all offloaded": Mode({"sharding": "parameters", "offload": "parameters"}),
    "none, optimizer offloaded": Mode({"offload": "optimizer"}),
    "first rank": Mode({"exchange": "firstRank"}),
    "host": Mode({"exchange": "host"}),
}


def shape(mode, ranks):
    """Returns nodes and processes per node."""
    return (2, ranks // 2) if MODES[mode].by_node and ranks >= 4 else (1, ranks)


def parallelism(mode, scratch):
    """Returns spec.parallelism; `scratch` is the folder for what is offloaded."""
    fields = dict(MODES[mode].fields)
    if "offload" in fields:
        fields["offloadPath"] = str(scratch)
    return fields


def chosen(text):
    """Returns the modes that a user named, separated by semicolons; ValueError if one is unknown."""
    names = [name.strip() for name in text.split(";")] if text else list(MODES)
    for name in names:
        if name not in MODES:
            raise ValueError(f"{name}: expected one of {'; '.join(MODES)}")
    return names
