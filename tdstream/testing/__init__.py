"""The contract of nodes and pipelines as functions, for tests of your own ones."""

from tdstream.testing.contract import ContractError
from tdstream.testing.node_contract import check_node
from tdstream.testing.pipeline_contract import check_pipeline

__all__ = ["ContractError", "check_node", "check_pipeline"]
