"""What to do first where a requirement failed: one line each, which terminal, certificate and report repeat. Pure."""

from __future__ import annotations

from pytest_ckpt.judging.cold import OTHER_PROOFS

_CLIENTS = (
    "Look at the mount options that let a client keep names, attributes or data (NFS: actimeo, noac, lookupcache)."
)
_CACHES = (
    "Look for a cache between client and store (proxy, gateway, content network), and at replicas that answer late."
)
_OF_STORE = 'Run the command after "to reproduce", and show its log to who made the store.'
_REPRODUCE = 'Run the command after "to reproduce", then look at mount options and server log.'

NEXT_STEPS: dict[str, str] = {
    "SAVE": "Look at the phase and rank that took longest. fsync on all ranks: storage or network is too slow. "
    "One host alone: look there first. pytest-ckpt plan derives the limit.",
    "LOAD": "Look at the phase and rank that took longest. read on all ranks: storage or network is too slow. "
    "One host alone: look there first. pytest-ckpt plan derives the limit.",
    "INTEGRITY": "Repeat with --ckpt-keep and the same --ckpt-seed, and read the places that the faults name on the "
    "storage itself.",
    "COLD": "Make the drop work: run as root, or name the command that empties the client's cache "
    f"(--ckpt-drop-caches). Where the kernel counts no cached pages, one of these proves it, too: {OTHER_PROOFS}. A "
    "target in memory (tmpfs, zram, a file in memory) cannot meet it.",
    "DURABLE-CALLS": "Look which fsync returned an error, and in the kernel's log (dmesg) of that host; on an object "
    "store, which request of the commit did, and in the store's log.",
    "STRAGGLER": "Look at the named rank's host, its link, and the server that holds its files.",
    "REPEAT": "Repeat at full size while nothing else uses hosts and storage; choose a size that exceeds caches.",
    "RETENTION": "Ask whether the storage can delete in the background, or delete between saves.",
    "DATA": "Ask whether the storage compresses or deduplicates: its speed for unique data is what counts.",
    "BLOCKING": "Look what is longer: the copy (memory of the client), the save to a local tier where there is one "
    "(its disk), or the steps beside the save (cores, memory bandwidth and network that it takes).",
    "BACKGROUND": "Look at the phase and rank that took longest: the storage takes the checkpoint too slowly.",
    "LOST-WORK": "Look which part is largest: blocked, steps beside the save, or the time until the commit.",
    "RETAIN-COMMITTED": "Look which files of the newest checkpoint went with the one that was deleted.",
    "CHAIN": "Make chains shorter with --ckpt-full-every, or look at LOAD: which restore is slow, and in which phase.",
    "RETAIN-CHAIN": "Look at what the sentence names: a wrong page of the chain, or space that did not come back.",
    "DRAIN": "Look what is longer: the drain (the target, or the local tier that it reads), or what saves take from "
    "training; --ckpt-drain-every says how many saves share a drain.",
    "COMPRESSION": "Compress at a lower level (--ckpt-compress), with more cores for each rank, or not at all.",
    "PREEMPT": "Look at the phase that took longest, and whether a save in the background was waited for.",
    "NODE-LOSS": "One host cannot be lost: name several (--ckpt-hosts). Else look at the partner's tier and the ranks' "
    "network; the target has no part in it.",
    "TIER-ORDER": "Look which tier showed a checkpoint that was not whole, or hid one that was, and at the named file.",
    "CRASH-ASYNC": "Look at what the sentence says was left: which files, and whether they were committed too early.",
    "SCALING": "Look where the growth ends: links of clients, of servers, or what all clients share (a folder, a "
    "metadata server). If that is the rate the storage is sold for, state it with --ckpt-ceiling.",
    "SLOWDOWN": "Look what the save takes from training: cores, memory bandwidth or the network.",
    "STORM": "Look at the named rank, and at how the storage spreads one file over its servers.",
    "SHIFTED": "Look at the phase and rank that took longest: these files were written by another host.",
    "RESHAPED": "Look at the phase and rank that took longest, with fewer readers or half a file each.",
    "NEIGHBOUR": "Ask for a quality-of-service limit for each job, and look which phase became slower.",
    "MIXED": "Ask for a quality-of-service limit for readers or writers, and look which of them lost.",
    "ENDURE": "Look when the saves became slow: a write cache that ran full, garbage collection, a rebuild.",
    "STEADY": "Run for longer (--ckpt-duration), alone, and look what else used the storage.",
    "NEARFULL": "State the fill level up to which the storage keeps its speed, and keep more space free.",
    "MODEL-LOAD": "Compare cold and warm, reads and mappings: the slow one says where the limit is.",
    "CONSOLIDATE": "Ask what one client of this storage can read and write at most, and consolidate from several.",
    "FAILOVER": "Look at the break that the sentence names, and at what the storage's log says of that moment.",
    "UPGRADE": "Look at what was restarted when that save or load ran, and how clients find another server.",
    "SNAPSHOT": "Ask whether a snapshot takes all files at one moment, and what it makes the writer wait for.",
    "COMMIT": _REPRODUCE,
    "VISIBLE": _CLIENTS,
    "PUBLISH": _CLIENTS,
    "STALE": _CLIENTS,
    "EXCLUSIVE": _REPRODUCE,
    "DIRECT": "Keep buffered and direct access to one file apart, or ask for a client on which both agree.",
    "MMAP": _REPRODUCE,
    "POINTER": _REPRODUCE,
    "SPARSE": _REPRODUCE,
    "CLONE-FRESH": "Call fsync before a new file is copied, or copy by read and write; ask for a version that is "
    "without this bug.",
    "TRUNCATE": _REPRODUCE,
    "MKDIR": _REPRODUCE,
    "LARGE": _REPRODUCE,
    "NAMES": "A name was missing or came twice: look at mount options that let a client keep names (NFS: actimeo, "
    "lookupcache). The listing took too long: look at the metadata server and the time of a round trip to it.",
    "UNLINK": _REPRODUCE,
    "DURABLE": "Ask where an acknowledged byte lies: a volatile write cache must be off or backed by power.",
    "ERRORS": _REPRODUCE,
    "FULL": "Keep the volume from filling (quota, retention), and have the storage refuse a write it cannot keep.",
    "COMMIT-FULL": "Keep the volume from filling (quota, retention), and ask which calls need space to change a name.",
    "LIVE": "Look at the named call and path, at dmesg, the server and the network at that time.",
    "CAPABILITIES": _REPRODUCE,
    "OBJECT-COMMIT": _CACHES,
    "OBJECT-VISIBLE": _CACHES,
    "OBJECT-CREATE": "Keep locks and pointers elsewhere, or ask for a version of the store that heeds If-None-Match.",
    "OBJECT-UPDATE": "Keep locks and pointers elsewhere, or ask for a version of the store that heeds If-Match.",
    "OBJECT-MULTIPART": _OF_STORE,
    "OBJECT-LIMITS": "Set the part size and number of parts of your transfer manager to what this store takes.",
    "OBJECT-DIGEST": "Ask for a version of the store that checks digests; until then compare every byte after a save.",
    "OBJECT-RANGE": _CACHES,
    "OBJECT-OVERWRITE": _OF_STORE,
    "OBJECT-LIST": "Ask for a version of the store that lists rightly; until then find checkpoints by their marker.",
    "OBJECT-LARGE": "Keep objects below what this store takes, or ask for a version of it that takes larger ones.",
    "OBJECT-CROWD": "Raise the connections and requests that gateways serve at once, or add gateways.",
    "OBJECT-LIVE": "Look at the named request, at the gateway's and the store's log, and the network at that time.",
}
"""By requirement; what a plugin asks for has none."""
