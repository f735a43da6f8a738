// For nginx.conf beside it: the server that a datagram's connection ID names (njs 0.7 and later). docs/scaling.md describes it.

// First byte of connection IDs and server ID (8 bytes), and the server. The first byte is 0f: rotation 0, and 15 bytes follow.
// Rotation 1 is 2f, 2 is 4f, 3 is 6f, 4 is 8f, 5 is af, 6 is cf. While a rotation changes, the IDs of both are here.
const servers = {
    '0f0102030405060701': '192.0.2.11:443',
    '0f0102030405060702': '192.0.2.12:443',
    '0f0102030405060703': '192.0.2.13:443',
};

function choose(session) {
    session.on('upstream', function (datagram) {
        // RFC 8999: a long header has the version and the ID's length before the ID.
        const at = datagram[0] & 0x80 ? 6 : 1;
        session.variables.quic_server = servers[datagram.slice(at, at + 9).toString('hex')] || 'new_connections';
        session.off('upstream');
        session.done();
    });
}

export default { choose };
