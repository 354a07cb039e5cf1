-- Views over a lake of Tickwalk for DuckDB 1.3 and newer.
--
--   SET VARIABLE lake = 's3://profiles/tickwalk';
--   .read duckdb.sql
--   SELECT * FROM hot_methods('shop', now() - INTERVAL 1 HOUR, now()) ORDER BY self_ns DESC LIMIT 20;
--
-- Conditions on service, date and hour select folders, so queries with them read little.

-- A row for each sample. Rows that two collectors have, because an agent sent a message again, are there once.
CREATE OR REPLACE VIEW samples AS
SELECT *
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/samples-*.parquet',
                  hive_partitioning = true, hive_types = {service: VARCHAR, date: DATE, hour: INTEGER})
QUALIFY row_number() OVER (PARTITION BY session, sequence, row ORDER BY stop = '[unknown]') = 1;

-- A row for each stack; its content determines its id.
CREATE OR REPLACE VIEW stacks AS
SELECT stack_id, any_value(stop) AS stop, any_value(frames) AS frames
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/stacks-*.parquet', hive_partitioning = false)
GROUP BY stack_id;

-- The latest account of each session from each collector.
CREATE OR REPLACE VIEW accounts AS
SELECT * EXCLUDE (introduction, statistics)
FROM read_parquet(getvariable('lake') || '/service=*/date=*/hour=*/accounts-*.parquet',
                  hive_partitioning = true, hive_types = {service: VARCHAR, date: DATE, hour: INTEGER})
QUALIFY row_number() OVER (PARTITION BY session, writer ORDER BY sequence DESC) = 1;

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
    SELECT stack_id, sum(cpu_ns)::BIGINT AS cpu_ns, sum(samples)::BIGINT AS samples
    FROM samples
    WHERE service = wanted_service AND time >= from_time AND time < to_time
      AND date BETWEEN (from_time AT TIME ZONE 'UTC')::DATE AND (to_time AT TIME ZONE 'UTC')::DATE
    GROUP BY stack_id
), frames_of_sums AS (
    SELECT cpu_ns, samples, frames[1].name AS leaf,
           unnest(list_distinct(list_transform(frames, lambda frame: frame.name))) AS name
    FROM sums JOIN stacks USING (stack_id)
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
SELECT array_to_string(list_reverse(list_transform(frames, lambda frame: frame.name)), ';') AS stack,
       sum(cpu_ns)::BIGINT AS cpu_ns
FROM samples JOIN stacks USING (stack_id)
WHERE service = wanted_service AND time >= from_time AND time < to_time
  AND date BETWEEN (from_time AT TIME ZONE 'UTC')::DATE AND (to_time AT TIME ZONE 'UTC')::DATE
GROUP BY stack;
