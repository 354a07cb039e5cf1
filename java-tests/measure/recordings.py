"""Reads from a recording what the measuring tools need and no command prints: the statistics at every second.

The format is described in design/wire-format.md and proto/proto/profiler.proto; other messages and fields are skipped.
"""

import pathlib
import struct

# Flag and length before each message.
PREFIX = struct.Struct(">BI")
# Field numbers of proto/proto/profiler.proto.
MESSAGE = {2: "hello", 4: "samples", 5: "statistics"}
HELLO = {14: "monotonic_ns"}
STATISTICS = {1: "time_ns", 3: "requests", 4: "samples", 6: "handler_cycles", 7: "walk_ns", 10: "profiler_cpu_ns",
              12: "process_cpu_ns"}
NUMBERS = ["time_ns", "requests", "samples", "profiler_cpu_ns", "process_cpu_ns"]
HISTOGRAM = {1: "count", 2: "max", 3: "bucket", 4: "bucket_count"}


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data, names):
    """Yields name and value of the named fields of an encoded message; values are integers or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = varint(data, at)
        elif wire == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
        else:
            length = 8 if wire == 1 else 4
            value, at = int.from_bytes(data[at:at + length], "little"), at + length
        if tag >> 3 in names:
            yield names[tag >> 3], value


def integers(packed):
    at, values = 0, []
    while at < len(packed):
        value, at = varint(packed, at)
        values.append(value)
    return values


class Histogram:
    """Log-linear buckets, eight to a power of two."""

    def __init__(self, data):
        read = dict(fields(data, HISTOGRAM))
        self.count, self.max = read.get("count", 0), read.get("max", 0)
        self.buckets = list(zip(integers(read.get("bucket", b"")), integers(read.get("bucket_count", b""))))

    @staticmethod
    def lowest_in(bucket):
        if bucket < 8:
            return bucket
        exponent = bucket // 8 + 2
        return (8 + bucket % 8) << (exponent - 3)

    def quantile(self, share):
        """Returns an upper bound of a quantile: the largest value of its bucket."""
        left = share * self.count
        for bucket, count in self.buckets:
            left -= count
            if left <= 0:
                return min(self.lowest_in(bucket + 1) - 1, self.max)
        return self.max

    def sum(self):
        """Returns the sum of all values, each taken as the middle of its bucket."""
        return sum(count * (self.lowest_in(bucket) + self.lowest_in(bucket + 1) - 1) / 2 for bucket, count in self.buckets)


def messages(path):
    """Yields kind and body of the messages of a recording."""
    data, at = pathlib.Path(path).read_bytes(), 0
    while at + PREFIX.size <= len(data):
        _, length = PREFIX.unpack_from(data, at)
        begin, at = at + PREFIX.size, at + PREFIX.size + length
        yield from fields(data[begin:at], MESSAGE)


def statistics(path):
    """Returns the start of the session on CLOCK_MONOTONIC and its statistics in order, each a dictionary."""
    start, found = 0, []
    for kind, body in messages(path):
        if kind == "hello":
            start = start or dict(fields(body, HELLO)).get("monotonic_ns", 0)
        elif kind == "statistics":
            # A number that is zero is not sent.
            found.append({**dict.fromkeys(NUMBERS, 0), **{
                name: Histogram(value) if isinstance(value, bytes) else value
                for name, value in fields(body, STATISTICS)}})
    return start, found


def sample_bytes(path):
    """Returns the bytes of all batches of samples."""
    return sum(len(body) for kind, body in messages(path) if kind == "samples")
