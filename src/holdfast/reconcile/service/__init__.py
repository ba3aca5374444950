"""One pass over an InferenceService, for the operator and for library users.

Start at `reconciler.py`, which is the pass. `observe.py` reads the children, `traffic.py` advances
the canary, `decisions.py` puts each child to the one `decide`, `apply.py` writes. `status.py`
makes the status of what a pass saw (`status_inputs.py`): its conditions (`conditions.py`, of drift
in `drift_conditions.py`) and what is known of the model (`model_status.py`). `transitions.py` makes
the facts of what changed; `messages.py` has the sentences.

Beside the passes are the monitors, which `monitors.py` puts together: `runtime.py` asks pods what
they serve, `model_head.py` asks hubs whether a branch moved on, `flaps.py` remembers pods that come
and go, and `drains.py` those that were stopped without waiting. `model_cache.py` has models
downloaded.
"""
