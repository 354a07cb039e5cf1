"""Reads metrics from an address with the parser of the Prometheus project, and prints them as JSON.

usage: metrics.py URL

The result has type, help and samples of each metric: {"NAME": {"type", "help", "samples": [[name, labels, value]]}}.
"""

import json
import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

with urllib.request.urlopen(sys.argv[1]) as answer:
    text = answer.read().decode()
    kind = answer.headers["Content-Type"]
families = {}
for family in text_string_to_metric_families(text):
    assert family.name not in families, f"{family.name} occurs twice"
    assert family.type != "unknown" and family.documentation, f"{family.name} has no type or help"
    families[family.name] = {
        "type": family.type,
        "help": family.documentation,
        "samples": [[sample.name, sample.labels, sample.value] for sample in family.samples],
    }
json.dump({"content_type": kind, "metrics": families}, sys.stdout)
