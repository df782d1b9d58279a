module quarry/guest

go 1.24
