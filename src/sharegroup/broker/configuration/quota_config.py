"""The settings of client quotas: over which time they are measured, and how many there may be."""

from __future__ import annotations

from sharegroup.broker.configuration.config_values import INT_MAX, ConfigPart, key


class QuotaConfig(ConfigPart):
    """The windows in which the use of clients is counted, and the limits of quotas themselves."""

    windows: int = key(
        "quota.window.num",
        11,
        "Number of windows over which the use of a client is averaged. A client may use the limit "
        "of all windows but one at once.",
        low=1,
        high=INT_MAX,
    )
    window_seconds: int = key(
        "quota.window.size.seconds",
        1,
        "Duration of each of these windows.",
        low=1,
        high=INT_MAX,
    )
    mutation_windows: int = key(
        "controller.quota.window.num",
        11,
        "Number of windows whose limit of `controller_mutation_rate` a client may use at once.",
        low=1,
        high=INT_MAX,
    )
    mutation_window_seconds: int = key(
        "controller.quota.window.size.seconds",
        1,
        "Duration of each of these windows.",
        low=1,
        high=INT_MAX,
    )
    entities_max: int = key(
        "sharegroup.client.quota.entities.max",
        1_000,
        "Maximum number of users, client ids and addresses that have quotas.",
        low=1,
    )
    meters_max: int = key(
        "sharegroup.client.quota.meters.max",
        2_000,
        "Maximum number of clients whose use is counted separately. Further clients share one "
        "limit until the use of another client is too long ago to count.",
        low=1,
    )
