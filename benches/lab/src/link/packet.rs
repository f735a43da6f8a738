//! What the emulator reads and changes of IP packets: their flow, and the congestion mark. Pure.

/// The flow of a packet, as far as its link distinguishes flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Flow {
    /// As IP numbers them: 6 is TCP, 17 UDP.
    pub(super) protocol: u8,
    /// 0 where there are none.
    pub(super) source: u16,
    pub(super) destination: u16,
}

/// TCP and UDP in IP.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

/// Protocol and length of the header of an IPv4 packet, or of an IPv6 packet without extension headers.
pub(super) fn header(packet: &[u8]) -> Option<(u8, usize)> {
    match packet.first()? >> 4 {
        4 => Some((*packet.get(9)?, usize::from(packet.first()? & 15) * 4)),
        6 => Some((*packet.get(6)?, 40)),
        _ => None,
    }
}

/// The flow of a packet.
pub(super) fn flow(packet: &[u8]) -> Flow {
    let none = Flow { protocol: 0, source: 0, destination: 0 };
    let Some((protocol, length)) = header(packet) else { return none };
    let port = |at: usize| match protocol {
        TCP | UDP => u16_at(packet, length + at).unwrap_or_default(),
        _ => 0,
    };
    Flow { protocol, source: port(0), destination: port(2) }
}

/// Marks a packet of an ECN-capable transport as having met congestion (RFC 3168 §5); whether it is one.
pub(super) fn mark(packet: &mut [u8]) -> bool {
    const CE: u8 = 3;
    match packet.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(field) = packet.get_mut(1).filter(|field| **field & CE != 0) else { return false };
            *field |= CE;
            ipv4_checksum(packet);
            true
        }
        // Of the traffic class the low bits are the high ones of the second byte.
        Some(6) => {
            let Some(field) = packet.get_mut(1).filter(|field| **field & (CE << 4) != 0) else { return false };
            *field |= CE << 4;
            true
        }
        _ => false,
    }
}

/// Writes the checksum of an IPv4 header.
pub(super) fn ipv4_checksum(packet: &mut [u8]) {
    let Some((_, length)) = header(packet) else { return };
    put_u16(packet, 10, 0);
    let sum = sum(packet.get(..length).unwrap_or_default(), 0);
    put_u16(packet, 10, !sum);
}

/// The ones' complement sum of 16-bit words (RFC 1071), begun with another sum.
pub(super) fn sum(bytes: &[u8], begin: u64) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u64::from(u16::from_be_bytes([high, low])),
        [high] => u64::from(high) << 8,
        _ => 0,
    });
    let mut sum = begin + words.sum::<u64>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or_default()
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *field = value.to_be_bytes();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An IPv4 packet from port 443 to port 5000.
    pub(in crate::link) fn ipv4(protocol: u8, tos: u8, transport: &[u8]) -> Vec<u8> {
        let length = u16::try_from(20 + transport.len()).unwrap();
        let mut packet = vec![0x45, tos, 0, 0, 0, 9, 0x40, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        packet.extend_from_slice(transport);
        ipv4_checksum(&mut packet);
        packet
    }

    #[test]
    fn the_example_of_rfc_1071_has_its_sum() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0), 0xddf2);
        assert_eq!(sum(&[0x01], 0), 0x0100);
    }

    #[test]
    fn a_flow_is_its_protocol_and_ports() {
        let packet = ipv4(UDP, 0, &[1, 187, 0x13, 0x88, 0, 8, 0, 0]);
        assert_eq!(flow(&packet), Flow { protocol: UDP, source: 443, destination: 5000 });
        assert_eq!(flow(&ipv4(1, 0, &[8, 0])), Flow { protocol: 1, source: 0, destination: 0 });
        assert_eq!(flow(&[]), Flow { protocol: 0, source: 0, destination: 0 });
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, TCP, 64];
        packet.resize(40, 0);
        packet.extend([0, 80, 0, 81]);
        assert_eq!(flow(&packet), Flow { protocol: TCP, source: 80, destination: 81 });
    }

    #[test]
    fn only_packets_of_transports_that_understand_it_are_marked() {
        for (before, after) in [(0, 0), (1, 3), (2, 3), (3, 3), (0xb8, 0xb8), (0xb9, 0xbb)] {
            let mut packet = ipv4(UDP, before, &[0; 8]);
            assert_eq!(mark(&mut packet), before & 3 != 0);
            assert_eq!(packet[1], after);
            assert_eq!(sum(&packet[..20], 0), 0xffff, "the header's checksum is right");
        }
        let mut packet = vec![0x60, 0x20, 0, 0];
        assert!(mark(&mut packet));
        assert_eq!(packet[1], 0x30);
        assert!(!mark(&mut []));
    }
}
