"""What the operator decides once for all deployments: periods, patience, the node. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.autoscaler import ScalingConfig
from scheduler.placing import NodeRules
from scheduler.plan import Deadlines


@dataclass(frozen=True, slots=True)
class LoopRules:
    """`scaling` holds the windows and rates that all deployments share; policies fill in the rest.

    A replica that answers no poll for `poll_patience_s` is killed. A wake that no held request backs is
    forgotten after `wake_life_s`. Only replicas idle for `shortest_idle_s` give way to another deployment.
    """

    node: NodeRules
    tick_s: float = 2.0
    scaling: ScalingConfig = field(default_factory=ScalingConfig)
    deadlines: Deadlines = field(default_factory=Deadlines)
    poll_patience_s: float = 30.0
    wake_life_s: float = 15.0
    meter_s: float = 60.0
    shortest_idle_s: float = 1.0
