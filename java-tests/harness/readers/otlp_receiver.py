"""Receives OTLP profiles over gRPC, with OpenTelemetry's message definitions and Google's gRPC library.

usage: otlp_receiver.py PORT [CERTIFICATE KEY]

Listens on 127.0.0.1 and prints "ready PORT"; port 0 chooses a free port. At the end of its standard input it prints what
it received as one JSON object: CPU time by service, thread and leaf method, requests, repeated profiles, and headers.
"""

import json
import sys
from collections import Counter
from concurrent import futures

import grpc
from opentelemetry.proto.collector.profiles.v1development import (
    profiles_service_pb2,
    profiles_service_pb2_grpc,
)

MEGABYTE = 1 << 20


class Receiver(profiles_service_pb2_grpc.ProfilesServiceServicer):
    def __init__(self):
        self.threads, self.leaves, self.services = Counter(), Counter(), Counter()
        self.requests = self.repeated = self.samples = 0
        self.ids, self.headers = set(), {}

    def Export(self, request, context):
        self.requests += 1
        self.headers.update(context.invocation_metadata())
        texts = request.dictionary.string_table
        for resource in request.resource_profiles:
            attributes = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_profiles:
                for profile in scope.profiles:
                    if profile.profile_id in self.ids:
                        self.repeated += 1
                        continue
                    self.ids.add(profile.profile_id)
                    self.add(request.dictionary, texts, attributes["service.name"], profile)
        return profiles_service_pb2.ExportProfilesServiceResponse()

    def add(self, dictionary, texts, service, profile):
        assert texts[profile.sample_type.unit_strindex] == "count"
        for sample in profile.samples:
            ns = sum(sample.values) * profile.period
            labels = [dictionary.attribute_table[index] for index in sample.attribute_indices]
            labels = {texts[label.key_strindex]: label.value for label in labels}
            locations = dictionary.stack_table[sample.stack_index].location_indices
            line = dictionary.location_table[locations[0]].lines[0]
            leaf = texts[dictionary.function_table[line.function_index].name_strindex]
            self.samples += 1
            self.services[service] += ns
            self.threads[labels["thread.name"].string_value] += ns
            self.leaves[leaf] += ns


def main():
    port, identity = sys.argv[1], sys.argv[2:]
    receiver = Receiver()
    options = [("grpc.max_receive_message_length", 4 * MEGABYTE), ("grpc.so_reuseport", 0)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1), options=options)
    profiles_service_pb2_grpc.add_ProfilesServiceServicer_to_server(receiver, server)
    address = f"127.0.0.1:{port}"
    if identity:
        certificate, key = (open(path, "rb").read() for path in identity)
        bound = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    else:
        bound = server.add_insecure_port(address)
    server.start()
    print(f"ready {bound}", flush=True)
    sys.stdin.read()
    server.stop(grace=5).wait()
    json.dump(
        {
            "requests": receiver.requests,
            "repeated": receiver.repeated,
            "samples": receiver.samples,
            "cpu_ns": sum(receiver.services.values()),
            "services": receiver.services,
            "threads": receiver.threads,
            "leaves": receiver.leaves,
            "headers": {name: value for name, value in receiver.headers.items() if isinstance(value, str)},
        },
        sys.stdout,
    )


main()
