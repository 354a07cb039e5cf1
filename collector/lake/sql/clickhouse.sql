-- Views over a lake of Tickwalk for ClickHouse 25.3 and newer, and chDB.
--
--   tickwalk lake sql clickhouse s3://profiles/tickwalk | clickhouse client --multiquery
--
-- The files are read by s3() or file(); change these for credentials or another endpoint. Hive partitioning gives the
-- column service, as the folder has it: with %XX.
-- Views with a time read only the folders of its hours and of their service. The views samples, accounts and
-- samples_with_frames read the whole lake, or the folders of the service that a condition names.

-- A row for each sample of some time. Rows that two collectors have, because an agent sent a message again, are there
-- once.
CREATE OR REPLACE VIEW samples_between AS
SELECT * REPLACE (decodeURLComponent(service) AS service) FROM LAKE(samples)
WHERE time >= {from:DateTime64(6, 'UTC')} AND time < {to:DateTime64(6, 'UTC')}
  AND addHours(toDateTime(toDate(date), 'UTC'), toUInt8(hour)) >= toStartOfHour({from:DateTime64(6, 'UTC')})
  AND addHours(toDateTime(toDate(date), 'UTC'), toUInt8(hour)) < {to:DateTime64(6, 'UTC')}
ORDER BY stop = '[unknown]'
LIMIT 1 BY service, session, sequence, row;

-- A row for each service and stack of some time; a stack's content determines its id.
CREATE OR REPLACE VIEW stacks_between AS
SELECT decodeURLComponent(service) AS service, stack_id, any(stop) AS stop, any(frames) AS frames
FROM LAKE(stacks)
WHERE addHours(toDateTime(toDate(date), 'UTC'), toUInt8(hour)) >= toStartOfHour({from:DateTime64(6, 'UTC')})
  AND addHours(toDateTime(toDate(date), 'UTC'), toUInt8(hour)) < {to:DateTime64(6, 'UTC')}
GROUP BY service, stack_id;

-- All samples.
CREATE OR REPLACE VIEW samples AS
SELECT * REPLACE (decodeURLComponent(service) AS service) FROM LAKE(samples)
ORDER BY stop = '[unknown]'
LIMIT 1 BY service, session, sequence, row;

-- All stacks.
CREATE OR REPLACE VIEW stacks AS
SELECT stack_id, any(stop) AS stop, any(frames) AS frames
FROM LAKE(stacks)
GROUP BY stack_id;

-- The latest account of each session from each collector.
CREATE OR REPLACE VIEW accounts AS
SELECT * EXCEPT (introduction, statistics) REPLACE (decodeURLComponent(service) AS service) FROM LAKE(accounts)
ORDER BY sequence DESC
LIMIT 1 BY service, session, writer;

-- A row for each frame of each sample; frame 1 is the one that ran.
CREATE OR REPLACE VIEW samples_with_frames AS
SELECT samples.*, position AS frame, element.name AS name, element.class AS class, element.method AS method,
       element.file AS file, element.line AS line, element.kind AS kind
FROM samples
JOIN stacks USING (stack_id)
ARRAY JOIN stacks.frames AS element, arrayEnumerate(stacks.frames) AS position;

-- Methods with the CPU time in which they ran (self), and in which they or their callees ran (total). A method that
-- calls itself counts once. Marks such as "[compiling] X" are rows only where they are on top of a stack.
CREATE OR REPLACE VIEW hot_methods AS
WITH sums AS (
    SELECT stack_id, sum(cpu_ns) AS cpu_ns, sum(samples) AS samples
    FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
    WHERE service = {service:String}
    GROUP BY stack_id
), stacks_of_service AS (
    SELECT stack_id, frames FROM stacks_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
    WHERE service = {service:String}
)
SELECT name,
       sumIf(cpu_ns, name = leaf) AS self_ns,
       sum(cpu_ns) AS total_ns,
       sumIf(samples, name = leaf) AS self_samples,
       sum(samples) AS total_samples
FROM (
    SELECT cpu_ns, samples, frames.name[1] AS leaf, arrayJoin(arrayDistinct(frames.name)) AS name
    FROM sums JOIN stacks_of_service USING (stack_id)
)
GROUP BY name
HAVING total_ns > 0 AND (self_samples > 0 OR NOT startsWith(name, '['));

-- Rows of a flame graph: "root;...;leaf" and its CPU time, the collapsed format.
CREATE OR REPLACE VIEW collapsed AS
SELECT arrayStringConcat(arrayReverse(arrayMap(name -> replaceAll(name, ';', ':'), frames.name)), ';') AS stack,
       sum(sums.cpu_ns) AS cpu_ns
FROM (
    SELECT stack_id, sum(cpu_ns) AS cpu_ns
    FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
    WHERE service = {service:String}
    GROUP BY stack_id
) AS sums
JOIN (
    SELECT stack_id, frames FROM stacks_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
    WHERE service = {service:String}
) AS stacks USING (stack_id)
GROUP BY stack;

-- Self time of methods in two windows, for example before and after a deployment.
CREATE OR REPLACE VIEW compare_methods AS
SELECT name, sum(self_ns * is_before) AS before_ns, sum(self_ns * (1 - is_before)) AS after_ns
FROM (
    SELECT name, self_ns, 1 AS is_before
    FROM hot_methods(service = {service:String}, from = {before_from:String}, to = {before_to:String})
    UNION ALL
    SELECT name, self_ns, 0 AS is_before
    FROM hot_methods(service = {service:String}, from = {after_from:String}, to = {after_to:String})
)
GROUP BY name;

-- CPU time by service.
CREATE OR REPLACE VIEW cpu_by_service AS
SELECT service, sum(samples.cpu_ns) AS cpu_ns, sum(samples.samples) AS samples
FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')}) AS samples
GROUP BY service;

-- CPU time by service and a label of its processes, such as its version.
CREATE OR REPLACE VIEW cpu_by_label AS
SELECT service, labels[{label:String}] AS value, sum(samples.cpu_ns) AS cpu_ns
FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')}) AS samples
GROUP BY service, value;

-- CPU time of a service by minute.
CREATE OR REPLACE VIEW cpu_by_minute AS
SELECT toStartOfMinute(time) AS minute, sum(samples.cpu_ns) AS cpu_ns
FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')}) AS samples
WHERE service = {service:String}
GROUP BY minute;

-- CPU time of a service by name and kind of its threads.
CREATE OR REPLACE VIEW cpu_by_thread AS
SELECT thread, thread_kind, sum(samples.cpu_ns) AS cpu_ns
FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')}) AS samples
WHERE service = {service:String}
GROUP BY thread, thread_kind;

-- Cost of each service and day (UTC) at a price of an hour of one CPU.
CREATE OR REPLACE VIEW cost_by_day AS
SELECT service, toDate(date) AS date, sum(samples.cpu_ns) AS cpu_ns,
       sum(samples.cpu_ns) / 3.6e12 * {price_of_hour:Float64} AS cost
FROM samples_between(
    from = toDateTime64({from_date:Date}, 6, 'UTC'), to = toDateTime64({to_date:Date} + 1, 6, 'UTC')) AS samples
GROUP BY service, date;

-- A flame graph as Grafana draws it: the nodes in depth-first order, each with its depth, its CPU time with callees
-- (value) and without (self).
CREATE OR REPLACE VIEW flame_graph AS
SELECT length(path) - 1 AS level, sum(ns) AS value, sumIf(ns, path = stack) AS self, path[-1] AS label
FROM (
    SELECT ns, arrayConcat(['all'], arrayReverse(frames.name)) AS stack,
           arrayJoin(arrayMap(depth -> arraySlice(stack, 1, depth), range(1, length(stack) + 1))) AS path
    FROM (
        SELECT stack_id, sum(cpu_ns) AS ns
        FROM samples_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
        WHERE service = {service:String}
        GROUP BY stack_id
    ) AS sums
    JOIN (
        SELECT stack_id, frames FROM stacks_between(from = {from:DateTime64(6, 'UTC')}, to = {to:DateTime64(6, 'UTC')})
        WHERE service = {service:String}
    ) AS stacks USING (stack_id)
)
GROUP BY path
ORDER BY path;
