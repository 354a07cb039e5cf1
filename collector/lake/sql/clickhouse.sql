-- Views over a lake of Tickwalk for ClickHouse 25.3 and newer, and chDB.
--
-- Replace LAKE by what reads the files: s3('https://bucket.s3.amazonaws.com/path/**/{table}-*.parquet') with the name of
-- the table in place of {table}, or file('/path/**/{table}-*.parquet'). Hive partitioning gives the column service.

-- A row for each sample. Rows that two collectors have, because an agent sent a message again, are there once.
CREATE OR REPLACE VIEW samples AS
SELECT * FROM LAKE(samples)
ORDER BY stop = '[unknown]'
LIMIT 1 BY session, sequence, row;

-- A row for each stack; its content determines its id.
CREATE OR REPLACE VIEW stacks AS
SELECT stack_id, any(stop) AS stop, any(frames) AS frames
FROM LAKE(stacks)
GROUP BY stack_id;

-- The latest account of each session from each collector.
CREATE OR REPLACE VIEW accounts AS
SELECT * EXCEPT (introduction, statistics) FROM LAKE(accounts)
ORDER BY sequence DESC
LIMIT 1 BY session, writer;

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
    FROM samples
    WHERE service = {service:String} AND time >= {from:DateTime64(6, 'UTC')} AND time < {to:DateTime64(6, 'UTC')}
    GROUP BY stack_id
)
SELECT name,
       sumIf(cpu_ns, name = leaf) AS self_ns,
       sum(cpu_ns) AS total_ns,
       sumIf(samples, name = leaf) AS self_samples,
       sum(samples) AS total_samples
FROM (
    SELECT cpu_ns, samples, frames.name[1] AS leaf, arrayJoin(arrayDistinct(frames.name)) AS name
    FROM sums JOIN stacks USING (stack_id)
)
GROUP BY name
HAVING total_ns > 0 AND (self_samples > 0 OR NOT startsWith(name, '['));
