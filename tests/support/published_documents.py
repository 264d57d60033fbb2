"""Functions that read values from the JSON document of ``pytest-ckpt judge`` about published results."""

from __future__ import annotations


def outcomes(document):
    return {v["id"]: v["outcome"] for v in document["requirements"]}


def reason_for(document, requirement):
    return next(v["because"] for v in document["requirements"] if v["id"] == requirement)


def messages_by_path(document):
    messages = document["messages"] if "messages" in document else document["published"]["messages"]
    return {m["path"]: m["text"] for m in messages}


def values_by_kind(document):
    return {f["kind"]: f for f in document["published"]["figures"]}
