SELECT plpgsql_loop();
