-- Views over a lake of Tickwalk for DuckDB 1.3 and newer.
--
--   tickwalk lake sql duckdb s3://profiles/tickwalk > lake.sql && duckdb -init lake.sql
--   SELECT * FROM hot_methods('shop', now() - INTERVAL 1 HOUR, now()) ORDER BY self_ns DESC LIMIT 20;
--   SELECT host, sum(cpu_ns) FROM samples_between(now() - INTERVAL 1 HOUR, now()) WHERE service = 'shop' GROUP BY host;
--
-- Macros read only the folders of their hours and their service. The views samples, accounts and samples_with_frames
-- read the whole lake, or the folders of the service that a condition names.

-- A row for each sample of some time. Rows that two collectors have, because an agent sent a message again, are there
-- once.
CREATE OR REPLACE MACRO samples_between(from_time, to_time) AS TABLE
SELECT *
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/samples-*.parquet',
                  hive_partitioning = true, hive_types = {service: 'VARCHAR', date: 'DATE', hour: 'INTEGER'})
WHERE time >= from_time::TIMESTAMPTZ AND time < to_time::TIMESTAMPTZ
  AND date + to_hours(hour) >= date_trunc('hour', from_time::TIMESTAMPTZ AT TIME ZONE 'UTC')
  AND date + to_hours(hour) < to_time::TIMESTAMPTZ AT TIME ZONE 'UTC'
QUALIFY row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') = 1;

-- A row for each service and stack of some time; a stack's content determines its id.
CREATE OR REPLACE MACRO stacks_between(from_time, to_time) AS TABLE
SELECT service, stack_id, any_value(stop) AS stop, any_value(frames) AS frames
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/stacks-*.parquet',
                  hive_partitioning = true, hive_types = {service: 'VARCHAR', date: 'DATE', hour: 'INTEGER'})
WHERE date + to_hours(hour) >= date_trunc('hour', from_time::TIMESTAMPTZ AT TIME ZONE 'UTC')
  AND date + to_hours(hour) < to_time::TIMESTAMPTZ AT TIME ZONE 'UTC'
GROUP BY service, stack_id;

-- All samples.
CREATE OR REPLACE VIEW samples AS
SELECT *
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/samples-*.parquet',
                  hive_partitioning = true, hive_types = {service: 'VARCHAR', date: 'DATE', hour: 'INTEGER'})
QUALIFY row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') = 1;

-- All stacks.
CREATE OR REPLACE VIEW stacks AS
SELECT stack_id, any_value(stop) AS stop, any_value(frames) AS frames
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/stacks-*.parquet', hive_partitioning = false)
GROUP BY stack_id;

-- The latest account of each session from each collector.
CREATE OR REPLACE VIEW accounts AS
SELECT * EXCLUDE (introduction, statistics)
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/accounts-*.parquet',
                  hive_partitioning = true, hive_types = {service: 'VARCHAR', date: 'DATE', hour: 'INTEGER'})
QUALIFY row_number() OVER (PARTITION BY service, session, writer ORDER BY sequence DESC) = 1;

-- A row for each frame of each sample; frame 1 is the one that ran.
CREATE OR REPLACE VIEW samples_with_frames AS
SELECT samples.*, frame, frames[frame].name AS name, frames[frame].class AS class, frames[frame].method AS method,
       frames[frame].file AS file, frames[frame].line AS line, frames[frame].kind AS kind
FROM samples
JOIN (SELECT stack_id, frames, unnest(range(1, len(frames) + 1)) AS frame FROM stacks) USING (stack_id);

-- Methods with the CPU time in which they ran (self), and in which they or their callees ran (total). A method that
-- calls itself counts once. Marks such as "[compiling] X" are rows only where they are on top of a stack.
CREATE OR REPLACE MACRO hot_methods(wanted_service, from_time, to_time) AS TABLE
WITH sums AS (
    SELECT service, stack_id, sum(cpu_ns)::BIGINT AS cpu_ns, sum(samples)::BIGINT AS samples
    FROM samples_between(from_time, to_time)
    WHERE service = wanted_service
    GROUP BY service, stack_id
), frames_of_sums AS (
    SELECT cpu_ns, samples, frames[1].name AS leaf,
           unnest(list_distinct(list_transform(frames, lambda frame: frame.name))) AS name
    FROM sums JOIN stacks_between(from_time, to_time) USING (service, stack_id)
    WHERE service = wanted_service
)
SELECT name,
       sum(CASE WHEN name = leaf THEN cpu_ns ELSE 0 END)::BIGINT AS self_ns,
       sum(cpu_ns)::BIGINT AS total_ns,
       sum(CASE WHEN name = leaf THEN samples ELSE 0 END)::BIGINT AS self_samples,
       sum(samples)::BIGINT AS total_samples
FROM frames_of_sums
GROUP BY name
HAVING sum(cpu_ns) > 0 AND (self_samples > 0 OR NOT starts_with(name, '['));

-- Rows of a flame graph: "root;...;leaf" and its CPU time, the collapsed format.
CREATE OR REPLACE MACRO collapsed(wanted_service, from_time, to_time) AS TABLE
SELECT array_to_string(list_reverse(list_transform(frames, lambda frame: replace(frame.name, ';', ':'))), ';') AS stack,
       sum(cpu_ns)::BIGINT AS cpu_ns
FROM samples_between(from_time, to_time) JOIN stacks_between(from_time, to_time) USING (service, stack_id)
WHERE service = wanted_service
GROUP BY stack;

-- Self time of methods in two windows, for example before and after a deployment.
CREATE OR REPLACE MACRO compare_methods(wanted_service, before_from, before_to, after_from, after_to) AS TABLE
SELECT name, coalesce(before.self_ns, 0) AS before_ns, coalesce(after.self_ns, 0) AS after_ns
FROM hot_methods(wanted_service, before_from, before_to) AS before
FULL JOIN hot_methods(wanted_service, after_from, after_to) AS after USING (name);

-- CPU time by service.
CREATE OR REPLACE MACRO cpu_by_service(from_time, to_time) AS TABLE
SELECT service, sum(cpu_ns)::BIGINT AS cpu_ns, sum(samples)::BIGINT AS samples
FROM samples_between(from_time, to_time)
GROUP BY service;

-- CPU time by service and a label of its processes, such as its version.
CREATE OR REPLACE MACRO cpu_by_label(label, from_time, to_time) AS TABLE
SELECT service, coalesce(labels[label], '') AS value, sum(cpu_ns)::BIGINT AS cpu_ns
FROM samples_between(from_time, to_time)
GROUP BY service, value;

-- CPU time of a service by minute.
CREATE OR REPLACE MACRO cpu_by_minute(wanted_service, from_time, to_time) AS TABLE
SELECT date_trunc('minute', time) AS minute, sum(cpu_ns)::BIGINT AS cpu_ns
FROM samples_between(from_time, to_time)
WHERE service = wanted_service
GROUP BY minute;

-- CPU time of a service by name and kind of its threads.
CREATE OR REPLACE MACRO cpu_by_thread(wanted_service, from_time, to_time) AS TABLE
SELECT thread, thread_kind, sum(cpu_ns)::BIGINT AS cpu_ns
FROM samples_between(from_time, to_time)
WHERE service = wanted_service
GROUP BY thread, thread_kind;

-- Cost of each service and day (UTC) at a price of an hour of one CPU.
CREATE OR REPLACE MACRO cost_by_day(price_of_hour, from_date, to_date) AS TABLE
SELECT service, date, sum(cpu_ns)::BIGINT AS cpu_ns, sum(cpu_ns) / 3.6e12 * price_of_hour AS cost
FROM samples_between(from_date::TIMESTAMP AT TIME ZONE 'UTC', (to_date::DATE + 1)::TIMESTAMP AT TIME ZONE 'UTC')
GROUP BY service, date;
