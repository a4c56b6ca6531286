"""A structure-aware fuzzer of the broker.

It makes valid requests of every type and version from kio's schemas, with values that mean
something to the broker, and breaks most of them: fields, lengths, counts, varints, tags, headers,
frames that are cut, joined or spliced, and record batches of every codec.

    python -m tests.fuzz --seconds 600 --seed 1               in this process, no sockets
    python -m tests.fuzz --seconds 600 --seed 1 --socket      a broker process, an honest probe

Most frames are valid or have wrong values in fields, the others are broken anywhere.  Some
connections are those of honest clients (`honest`), so there are records, members and sessions.
A run prints its mix, and counts the frames that the broker decoded or refused, by the broker's
own count.

`engine` feeds frames to the broker's own connections on a clock moved by hand.  `findings` makes
the shortest sequence of frames that shows a finding again; those that are fixed stay as cases in
`tests/attacks/cases`.
"""
