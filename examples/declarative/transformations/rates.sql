-- A stream's messages and losses, second by second. Spark computes it again with each run.
CREATE MATERIALIZED VIEW rates AS
SELECT stream, date_trunc('SECOND', time) AS second, count(*) AS messages, sum(lost) AS lost_bytes
FROM frames
GROUP BY stream, date_trunc('SECOND', time);
