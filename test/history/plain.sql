BEGIN ISOLATION LEVEL READ COMMITTED\; SELECT h.begin();
SELECT h.step();
SELECT h.step();
SELECT h.step();
SELECT h.done(:client_id + :first, true)\; COMMIT;
