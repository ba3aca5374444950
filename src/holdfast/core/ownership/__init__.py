"""Whether a Kubernetes object is as declared, by its values and by the owners of its fields.

Start at `object_diff.py`: it joins the four signals of `signals.py` into one diff. `canonical.py`
gives objects the form in which they are compared, `managed_fields.py` reads who owns what (and
`server_side_apply.py` changes that as the API server does),
`delegated.py` and `ignore.py` say which differences are not ours to end, `healing.py` what a heal
writes. `fast_path.py` recognises unchanged objects without a full comparison.
"""
