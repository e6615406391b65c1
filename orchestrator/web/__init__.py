"""The read-only web page of `interleaved`: off unless section [web] says where."""
