"""The tables: what is in them, how rows travel to them, and what the server's errors mean.

`schema.streams` declares each of the four streams once: columns, types, keys. From the declarations
follow the tables (`ddl`, `migrations`), the payload of a frame (`rows`, `columns`), the Native
block (`layout`, `block`) and the insert statement (`insert`).

Rows come in through a builder (`rows`), one for each frame, and leave it as `Chunks`: columns in
the encoding of ClickHouse's Native format, with what is constant in a line stored once.
`build_block` joins the chunks of many frames into one block; `cut` takes some rows out of a frame,
for quarantine; `rows_of` gives them back for people to read.

This package knows nothing of files or sockets, and imports nothing of ours.
"""
