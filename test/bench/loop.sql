SELECT result FROM tw.atomic(:loop);
