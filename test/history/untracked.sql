BEGIN ISOLATION LEVEL :level\; SELECT h.begin();
SELECT h.step();
SELECT h.step();
SELECT h.step();
SELECT h.done(:client_id + :first, false)\; COMMIT;
