BEGIN ISOLATION LEVEL :level\; SELECT tw.track_reads(':mode')\; SELECT h.begin();
SELECT h.step();
SELECT h.step();
SELECT h.step();
SELECT h.done(:client_id + :first, false)\; COMMIT;
