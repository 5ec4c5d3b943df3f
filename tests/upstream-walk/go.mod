module ferrolet.example/tests/upstream-walk

go 1.26.0
