-- Views over a lake of Tickwalk for Spark 4.0 and newer.
--
--   tickwalk lake sql spark s3://profiles/tickwalk > lake.sql && spark-sql -i lake.sql
--   SELECT * FROM hot_methods('shop', now() - INTERVAL 1 HOUR, now()) ORDER BY self_ns DESC LIMIT 20;
--   SELECT host, sum(cpu_ns) FROM samples_between(now() - INTERVAL 1 HOUR, now()) WHERE service = 'shop' GROUP BY host;
--
-- Functions read only the folders of their hours and their service. The views samples, accounts and samples_with_frames
-- read the whole lake, or the folders of the service that a condition names.

SET spark.sql.session.timeZone=UTC;
-- A service whose name is a number is a text all the same.
SET spark.sql.sources.partitionColumnTypeInference.enabled=false;

CREATE OR REPLACE TEMPORARY VIEW sample_files
USING parquet OPTIONS (path 'LAKE', pathGlobFilter 'samples-*.parquet');

CREATE OR REPLACE TEMPORARY VIEW stack_files
USING parquet OPTIONS (path 'LAKE', pathGlobFilter 'stacks-*.parquet');

CREATE OR REPLACE TEMPORARY VIEW account_files
USING parquet OPTIONS (path 'LAKE', pathGlobFilter 'accounts-*.parquet');

-- A row for each sample of some time. Rows that two collectors have, because an agent sent a message again, are there
-- once.
CREATE OR REPLACE TEMPORARY FUNCTION samples_between(from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (
    time TIMESTAMP, cpu_ns BIGINT, samples BIGINT, stack_id BIGINT, stop STRING, host STRING, process BIGINT,
    thread STRING, thread_kind STRING, thread_id BIGINT, virtual_thread BIGINT, labels MAP<STRING, STRING>,
    session STRING, sequence BIGINT, row INT, thread_number INT, carrier INT, service STRING, date STRING, hour STRING)
RETURN
SELECT time, cpu_ns, samples, stack_id, stop, host, process, thread, thread_kind, thread_id, virtual_thread, labels,
       session, sequence, row, thread_number, carrier, service, date, hour
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
    WHERE time >= from_time AND time < to_time
      AND concat(date, hour) >= date_format(from_time, 'yyyy-MM-ddHH')
      AND concat(date, hour) <= date_format(to_time, 'yyyy-MM-ddHH')
)
WHERE place = 1;

-- A row for each service and stack of some time; a stack's content determines its id.
CREATE OR REPLACE TEMPORARY FUNCTION stacks_between(from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (
    service STRING, stack_id BIGINT, stop STRING,
    frames ARRAY<STRUCT<name: STRING, class: STRING, method: STRING, file: STRING, line: INT, kind: STRING,
                        signature: STRING, library: STRING, bci: INT, modifiers: INT>>)
RETURN
SELECT service, stack_id, any_value(stop), any_value(frames)
FROM stack_files
WHERE concat(date, hour) >= date_format(from_time, 'yyyy-MM-ddHH')
  AND concat(date, hour) <= date_format(to_time, 'yyyy-MM-ddHH')
GROUP BY service, stack_id;

-- All samples.
CREATE OR REPLACE TEMPORARY VIEW samples AS
SELECT * EXCEPT (place)
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, sequence, row ORDER BY stop = '[unknown]') AS place
    FROM sample_files
)
WHERE place = 1;

-- All stacks.
CREATE OR REPLACE TEMPORARY VIEW stacks AS
SELECT stack_id, any_value(stop) AS stop, any_value(frames) AS frames
FROM stack_files
GROUP BY stack_id;

-- The latest account of each session from each collector.
CREATE OR REPLACE TEMPORARY VIEW accounts AS
SELECT * EXCEPT (introduction, statistics, place)
FROM (
    SELECT *, row_number() OVER (PARTITION BY service, session, writer ORDER BY sequence DESC) AS place
    FROM account_files
)
WHERE place = 1;

-- A row for each frame of each sample; frame 1 is the one that ran.
CREATE OR REPLACE TEMPORARY VIEW samples_with_frames AS
SELECT samples.*, position + 1 AS frame, element.name AS name, element.class AS class, element.method AS method,
       element.file AS file, element.line AS line, element.kind AS kind
FROM samples
JOIN stacks USING (stack_id)
LATERAL VIEW posexplode(frames) AS position, element;

-- Methods with the CPU time in which they ran (self), and in which they or their callees ran (total). A method that
-- calls itself counts once. Marks such as "[compiling] X" are rows only where they are on top of a stack.
CREATE OR REPLACE TEMPORARY FUNCTION hot_methods(wanted_service STRING, from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (name STRING, self_ns BIGINT, total_ns BIGINT, self_samples BIGINT, total_samples BIGINT)
RETURN
WITH sums AS (
    SELECT service, stack_id, sum(cpu_ns) AS cpu_ns, sum(samples) AS samples
    FROM samples_between(from_time, to_time)
    WHERE service = wanted_service
    GROUP BY service, stack_id
), frames_of_sums AS (
    SELECT cpu_ns, samples, frames[0].name AS leaf, explode(array_distinct(frames.name)) AS name
    FROM sums JOIN stacks_between(from_time, to_time) USING (service, stack_id)
    WHERE service = wanted_service
)
SELECT name, sum(if(name = leaf, cpu_ns, 0)), sum(cpu_ns), sum(if(name = leaf, samples, 0)), sum(samples)
FROM frames_of_sums
GROUP BY name
HAVING sum(cpu_ns) > 0 AND (sum(if(name = leaf, samples, 0)) > 0 OR NOT startswith(name, '['));

-- Rows of a flame graph: "root;...;leaf" and its CPU time, the collapsed format.
CREATE OR REPLACE TEMPORARY FUNCTION collapsed(wanted_service STRING, from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (stack STRING, cpu_ns BIGINT)
RETURN
SELECT array_join(reverse(transform(frames.name, name -> replace(name, ';', ':'))), ';') AS stack,
       sum(cpu_ns) AS cpu_ns
FROM samples_between(from_time, to_time) JOIN stacks_between(from_time, to_time) USING (service, stack_id)
WHERE service = wanted_service
GROUP BY 1;

-- Self time of methods in two windows, for example before and after a deployment.
CREATE OR REPLACE TEMPORARY FUNCTION compare_methods(
    wanted_service STRING, before_from TIMESTAMP, before_to TIMESTAMP, after_from TIMESTAMP, after_to TIMESTAMP)
RETURNS TABLE (name STRING, before_ns BIGINT, after_ns BIGINT)
RETURN
SELECT name, coalesce(before.self_ns, 0), coalesce(after.self_ns, 0)
FROM hot_methods(wanted_service, before_from, before_to) AS before
FULL JOIN hot_methods(wanted_service, after_from, after_to) AS after USING (name);

-- CPU time by service.
CREATE OR REPLACE TEMPORARY FUNCTION cpu_by_service(from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (service STRING, cpu_ns BIGINT, samples BIGINT)
RETURN
SELECT service, sum(cpu_ns), sum(samples)
FROM samples_between(from_time, to_time)
GROUP BY service;

-- CPU time by service and a label of its processes, such as its version.
CREATE OR REPLACE TEMPORARY FUNCTION cpu_by_label(label STRING, from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (service STRING, value STRING, cpu_ns BIGINT)
RETURN
SELECT service, coalesce(labels[label], ''), sum(cpu_ns)
FROM samples_between(from_time, to_time)
GROUP BY 1, 2;

-- CPU time of a service by minute.
CREATE OR REPLACE TEMPORARY FUNCTION cpu_by_minute(wanted_service STRING, from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (minute TIMESTAMP, cpu_ns BIGINT)
RETURN
SELECT date_trunc('minute', time), sum(cpu_ns)
FROM samples_between(from_time, to_time)
WHERE service = wanted_service
GROUP BY 1;

-- CPU time of a service by name and kind of its threads.
CREATE OR REPLACE TEMPORARY FUNCTION cpu_by_thread(wanted_service STRING, from_time TIMESTAMP, to_time TIMESTAMP)
RETURNS TABLE (thread STRING, thread_kind STRING, cpu_ns BIGINT)
RETURN
SELECT thread, thread_kind, sum(cpu_ns)
FROM samples_between(from_time, to_time)
WHERE service = wanted_service
GROUP BY thread, thread_kind;

-- Cost of each service and day (UTC) at a price of an hour of one CPU.
CREATE OR REPLACE TEMPORARY FUNCTION cost_by_day(price_of_hour DOUBLE, from_date STRING, to_date STRING)
RETURNS TABLE (service STRING, date STRING, cpu_ns BIGINT, cost DOUBLE)
RETURN
SELECT service, date, sum(cpu_ns), sum(cpu_ns) / 3.6e12D * price_of_hour
FROM samples_between(to_timestamp(from_date), to_timestamp(to_date) + INTERVAL 1 DAY)
GROUP BY service, date;
