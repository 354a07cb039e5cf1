-- Views over a lake of Tickwalk for DataFusion (tested with 55).
--
--   tickwalk lake sql datafusion file:///var/lib/lake > lake.sql && datafusion-cli -r lake.sql
--   EXECUTE hot_methods('shop', TIMESTAMP '2026-11-29T04:00:00Z', TIMESTAMP '2026-11-29T05:00:00Z');
--
-- DataFusion has no views with parameters; prepared statements are in their place, with the same names and parameters.
-- They read only the folders of their hours and their service. The views samples, accounts and samples_with_frames read
-- the whole lake, or the folders of the service that a condition names.

-- Keys of labels are compared with texts of the other kind.
SET datafusion.sql_parser.map_string_types_to_utf8view = false;

CREATE EXTERNAL TABLE sample_files STORED AS PARQUET PARTITIONED BY (service, date, hour)
LOCATION 'LAKE/**/samples-*.parquet';

CREATE EXTERNAL TABLE stack_files STORED AS PARQUET PARTITIONED BY (service, date, hour)
LOCATION 'LAKE/**/stacks-*.parquet';

CREATE EXTERNAL TABLE account_files STORED AS PARQUET PARTITIONED BY (service, date, hour)
LOCATION 'LAKE/**/accounts-*.parquet';

-- A row for each sample. Rows that two collectors have, because an agent sent a message again, are there once.
CREATE OR REPLACE VIEW samples AS
SELECT * EXCEPT (place)
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
)
WHERE place = 1;

-- A row for each stack; its content determines its id.
CREATE OR REPLACE VIEW stacks AS
SELECT stack_id, first_value(stop) AS stop, first_value(frames) AS frames
FROM stack_files
GROUP BY stack_id;

-- The latest account of each session from each collector.
CREATE OR REPLACE VIEW accounts AS
SELECT * EXCEPT (introduction, statistics, place)
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, writer ORDER BY sequence DESC) AS place
    FROM account_files
)
WHERE place = 1;

-- A row for each frame of each stack; frame 1 is the one that ran.
CREATE OR REPLACE VIEW stack_frames AS
SELECT stack_id, frame, element['name'] AS name, element['class'] AS class, element['method'] AS method,
       element['file'] AS file, element['line'] AS line, element['kind'] AS kind
FROM (
    SELECT stack_id, unnest(range(1, CAST(array_length(frames) AS BIGINT) + 1)) AS frame, unnest(frames) AS element
    FROM stacks
);

-- A row for each frame of each sample.
CREATE OR REPLACE VIEW samples_with_frames AS
SELECT samples.*, frame, name, class, method, file, line, kind
FROM samples JOIN stack_frames ON samples.stack_id = stack_frames.stack_id;

-- Methods with the CPU time in which they ran (self), and in which they or their callees ran (total). A method that
-- calls itself counts once. Marks such as "[compiling] X" are rows only where they are on top of a stack.
PREPARE hot_methods(VARCHAR, TIMESTAMP, TIMESTAMP) AS
WITH wanted AS (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE service = $1 AND time >= $2 AND time < $3
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
), sums AS (
    SELECT stack_id, sum(cpu_ns) AS cpu_ns, sum(samples) AS samples
    FROM wanted
    WHERE place = 1
    GROUP BY stack_id
), wanted_stacks AS (
    SELECT stack_id, first_value(frames) AS frames
    FROM stack_files
    WHERE service = $1
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
    GROUP BY stack_id
), wanted_frames AS (
    SELECT stack_id, unnest(range(1, CAST(array_length(frames) AS BIGINT) + 1)) AS frame, unnest(frames)['name'] AS name
    FROM wanted_stacks
), names AS (
    SELECT stack_id, name, min(frame) AS first
    FROM wanted_frames
    GROUP BY stack_id, name
)
SELECT name,
       sum(CASE WHEN first = 1 THEN cpu_ns ELSE 0 END) AS self_ns,
       sum(cpu_ns) AS total_ns,
       sum(CASE WHEN first = 1 THEN samples ELSE 0 END) AS self_samples,
       sum(samples) AS total_samples
FROM sums JOIN names ON sums.stack_id = names.stack_id
GROUP BY name
HAVING sum(cpu_ns) > 0 AND (sum(CASE WHEN first = 1 THEN samples ELSE 0 END) > 0 OR NOT starts_with(name, '['));

-- Rows of a flame graph: "root;...;leaf" and its CPU time, the collapsed format.
PREPARE collapsed(VARCHAR, TIMESTAMP, TIMESTAMP) AS
WITH wanted AS (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE service = $1 AND time >= $2 AND time < $3
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
), wanted_stacks AS (
    SELECT stack_id, first_value(frames) AS frames
    FROM stack_files
    WHERE service = $1
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
    GROUP BY stack_id
), wanted_frames AS (
    SELECT stack_id, unnest(range(1, CAST(array_length(frames) AS BIGINT) + 1)) AS frame, unnest(frames)['name'] AS name
    FROM wanted_stacks
), texts AS (
    SELECT stack_id, string_agg(replace(name, ';', ':'), ';' ORDER BY frame DESC) AS stack
    FROM wanted_frames
    GROUP BY stack_id
)
SELECT stack, sum(cpu_ns) AS cpu_ns
FROM wanted JOIN texts ON wanted.stack_id = texts.stack_id
WHERE place = 1
GROUP BY stack;

-- Self time of methods in two windows, for example before and after a deployment.
PREPARE compare_methods(VARCHAR, TIMESTAMP, TIMESTAMP, TIMESTAMP, TIMESTAMP) AS
WITH wanted AS (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE service = $1
      AND concat(date, hour) BETWEEN to_char(least($2, $4), '%Y-%m-%d%H') AND to_char(greatest($3, $5), '%Y-%m-%d%H')
), windows AS (
    SELECT stack_id, cpu_ns, time >= $2 AND time < $3 AS is_before, time >= $4 AND time < $5 AS is_after
    FROM wanted
    WHERE place = 1
), sums AS (
    SELECT stack_id, sum(CASE WHEN is_before THEN cpu_ns ELSE 0 END) AS before_ns,
           sum(CASE WHEN is_after THEN cpu_ns ELSE 0 END) AS after_ns
    FROM windows
    WHERE is_before OR is_after
    GROUP BY stack_id
), wanted_stacks AS (
    SELECT stack_id, first_value(frames) AS frames
    FROM stack_files
    WHERE service = $1
      AND concat(date, hour) BETWEEN to_char(least($2, $4), '%Y-%m-%d%H') AND to_char(greatest($3, $5), '%Y-%m-%d%H')
    GROUP BY stack_id
), wanted_frames AS (
    SELECT stack_id, unnest(range(1, CAST(array_length(frames) AS BIGINT) + 1)) AS frame, unnest(frames)['name'] AS name
    FROM wanted_stacks
), names AS (
    SELECT stack_id, name, min(frame) AS first
    FROM wanted_frames
    GROUP BY stack_id, name
)
SELECT name, sum(CASE WHEN first = 1 THEN before_ns ELSE 0 END) AS before_ns,
       sum(CASE WHEN first = 1 THEN after_ns ELSE 0 END) AS after_ns
FROM sums JOIN names ON sums.stack_id = names.stack_id
GROUP BY name
HAVING sum(before_ns + after_ns) > 0 AND (bool_or(first = 1) OR NOT starts_with(name, '['));

-- CPU time by service.
PREPARE cpu_by_service(TIMESTAMP, TIMESTAMP) AS
SELECT service, sum(cpu_ns) AS cpu_ns, sum(samples) AS samples
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE time >= $1 AND time < $2
      AND concat(date, hour) BETWEEN to_char($1, '%Y-%m-%d%H') AND to_char($2, '%Y-%m-%d%H')
)
WHERE place = 1
GROUP BY service;

-- CPU time by service and a label of its processes, such as its version.
PREPARE cpu_by_label(VARCHAR, TIMESTAMP, TIMESTAMP) AS
SELECT service, coalesce(labels[$1], '') AS value, sum(cpu_ns) AS cpu_ns
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE time >= $2 AND time < $3
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
)
WHERE place = 1
GROUP BY 1, 2;

-- CPU time of a service by minute.
PREPARE cpu_by_minute(VARCHAR, TIMESTAMP, TIMESTAMP) AS
SELECT date_trunc('minute', time) AS minute, sum(cpu_ns) AS cpu_ns
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE service = $1 AND time >= $2 AND time < $3
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
)
WHERE place = 1
GROUP BY 1;

-- CPU time of a service by name and kind of its threads.
PREPARE cpu_by_thread(VARCHAR, TIMESTAMP, TIMESTAMP) AS
SELECT thread, thread_kind, sum(cpu_ns) AS cpu_ns
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE service = $1 AND time >= $2 AND time < $3
      AND concat(date, hour) BETWEEN to_char($2, '%Y-%m-%d%H') AND to_char($3, '%Y-%m-%d%H')
)
WHERE place = 1
GROUP BY thread, thread_kind;

-- Cost of each service and day (UTC) at a price of an hour of one CPU.
PREPARE cost_by_day(DOUBLE, VARCHAR, VARCHAR) AS
SELECT service, date, sum(cpu_ns) AS cpu_ns, sum(cpu_ns) / 3.6e12 * $1 AS cost
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE date BETWEEN $2 AND $3
)
WHERE place = 1
GROUP BY service, date;
