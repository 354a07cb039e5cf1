-- Tables of a shop in memory and typical reports: joins, aggregation, a window function, a correlated subquery and a
-- recursive query. Takes about 20 s of CPU time.
-- Run with: java -cp h2.jar org.h2.tools.RunScript -url jdbc:h2:mem:demo -user sa -script h2.sql -showResults
SET @SALES = 600000;

CREATE TABLE region(id INT PRIMARY KEY, name VARCHAR(20) NOT NULL);
CREATE TABLE customer(id INT PRIMARY KEY, region_id INT NOT NULL, name VARCHAR(40) NOT NULL);
CREATE TABLE product(id INT PRIMARY KEY, parent_id INT, name VARCHAR(40) NOT NULL, price DECIMAL(10, 2) NOT NULL);
CREATE TABLE sale(id INT PRIMARY KEY, customer_id INT NOT NULL, product_id INT NOT NULL, quantity INT NOT NULL, sold_on DATE NOT NULL);

INSERT INTO region SELECT X, 'region-' || X FROM SYSTEM_RANGE(1, 20);
INSERT INTO customer SELECT X, 1 + MOD(X * 7, 20), 'customer ' || MOD(X * 7919, 100003) FROM SYSTEM_RANGE(1, 20000);
INSERT INTO product SELECT X, CASE WHEN X > 1 THEN X / 2 END, 'product ' || X, MOD(X * 37, 9973) / 10.0 FROM SYSTEM_RANGE(1, 4000);
INSERT INTO sale SELECT X, 1 + MOD(CAST(X AS BIGINT) * 7907, 20000), 1 + MOD(CAST(X AS BIGINT) * 6151 + X / 20000 * 17, 4000), 1 + MOD(X, 9),
    DATEADD('DAY', MOD(X, 730), DATE '2024-01-01') FROM SYSTEM_RANGE(1, @SALES);
CREATE INDEX sale_customer ON sale(customer_id);
CREATE INDEX sale_product ON sale(product_id);

-- Turnover by region and month.
SELECT COUNT(*) AS groups, SUM(turnover) AS turnover FROM (
    SELECT r.name, YEAR(s.sold_on) AS y, MONTH(s.sold_on) AS m, SUM(s.quantity * p.price) AS turnover
    FROM sale s JOIN customer c ON c.id = s.customer_id JOIN region r ON r.id = c.region_id JOIN product p ON p.id = s.product_id
    GROUP BY r.name, YEAR(s.sold_on), MONTH(s.sold_on));

-- Each customer's best sale, by a window function.
SELECT COUNT(*) AS customers, SUM(amount) AS amount FROM (
    SELECT s.customer_id, s.quantity * p.price AS amount,
        ROW_NUMBER() OVER (PARTITION BY s.customer_id ORDER BY s.quantity * p.price DESC, s.id) AS place
    FROM sale s JOIN product p ON p.id = s.product_id) WHERE place = 1;

-- Customers who buy more than the average of their region, by a correlated subquery.
CREATE TABLE spent AS
    SELECT c.id, c.region_id, c.name, SUM(s.quantity * p.price) AS amount
    FROM customer c JOIN sale s ON s.customer_id = c.id JOIN product p ON p.id = s.product_id GROUP BY c.id, c.region_id, c.name;
CREATE INDEX spent_region ON spent(region_id);
SELECT COUNT(*) AS above_average FROM spent a
    WHERE a.id <= 8000 AND a.amount > (SELECT AVG(b.amount) FROM spent b WHERE b.region_id = a.region_id);

-- All pairs of neighbours in the product tree and how deep it is, by a recursive query.
SELECT MAX(depth) AS depth, COUNT(*) AS products FROM (
    WITH RECURSIVE tree(id, depth) AS (
        SELECT id, 1 FROM product WHERE parent_id IS NULL
        UNION ALL
        SELECT p.id, t.depth + 1 FROM product p JOIN tree t ON p.parent_id = t.id)
    SELECT id, depth FROM tree);

-- Text search without an index.
SELECT COUNT(*) AS matches FROM sale s JOIN customer c ON c.id = s.customer_id
    WHERE UPPER(c.name) LIKE '%99%' AND REGEXP_LIKE(c.name, '^customer [0-9]*7$');

-- Products bought together by the same customer.
SELECT COUNT(*) AS pairs, MAX(times) AS most FROM (
    SELECT a.product_id, b.product_id AS other_id, COUNT(*) AS times
    FROM sale a JOIN sale b ON b.customer_id = a.customer_id AND b.product_id > a.product_id
    WHERE a.customer_id <= 8000 GROUP BY a.product_id, b.product_id);

-- Days on which a family of products sold more than seven selling days before.
SELECT COUNT(*) AS better_days FROM (
    SELECT sold, LAG(sold, 7) OVER (PARTITION BY family ORDER BY sold_on) AS before FROM (
        SELECT MOD(product_id, 200) AS family, sold_on, SUM(quantity) AS sold FROM sale GROUP BY MOD(product_id, 200), sold_on))
    WHERE sold > before;
