-- Five reports over generated sales: aggregation, join, window function, a self-join and an expression over strings. Most of
-- the time goes into loading classes and into code that Spark generates and the JVM compiles. Takes about 20 s of wall time.
SET spark.sql.shuffle.partitions=4;

CREATE TEMPORARY VIEW sale AS
    SELECT id, id * 7907 % 20000 AS customer, pmod(hash(id), 4000) AS product, 1 + id % 9 AS quantity, id % 730 AS day
    FROM range(0, 1000000, 1, 4);
CREATE TEMPORARY VIEW product AS
    SELECT id, concat('product ', id * 31 % 997) AS name, id * 37 % 9973 / 10.0 AS price FROM range(4000);

SELECT count(*) AS customers, sum(amount) AS turnover FROM (
    SELECT customer, sum(quantity * price) AS amount FROM sale JOIN product ON product.id = sale.product GROUP BY customer);

SELECT count(*) AS best FROM (
    SELECT customer, row_number() OVER (PARTITION BY customer ORDER BY quantity DESC, id) AS place FROM sale) WHERE place = 1;

SELECT name, sum(quantity) AS sold FROM sale JOIN product ON product.id = sale.product
    WHERE day BETWEEN 100 AND 200 GROUP BY name ORDER BY sold DESC, name LIMIT 5;

SELECT count(*) AS pairs, max(times) AS most FROM (
    SELECT a.product, b.product AS other, count(*) AS times
    FROM sale a JOIN sale b ON b.customer = a.customer AND b.product > a.product
    WHERE a.customer < 100 GROUP BY a.product, b.product);

SELECT count(DISTINCT upper(substr(name, 9))) AS names, sum(length(regexp_replace(name, '[0-9]', ''))) AS letters
    FROM sale JOIN product ON product.id = sale.product WHERE name LIKE '%9%';
