//! Reads and writes control messages (cmsg(3)) of received and sent messages: ECN codepoint, local address, segment
//! size.

use libc::{c_int, c_void, cmsghdr, in_pktinfo, in6_pktinfo, msghdr};
use std::{
    mem::{align_of, size_of, zeroed},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ptr,
};

/// ECN field of a TOS or traffic class byte (RFC 3168 §5).
const ECN_MASK: u8 = 0b11;

/// Buffer for control messages, with the alignment of cmsghdr. A dual-stack socket may get local address (twice), ECN
/// (twice) and segment size: 40 + 32 + 24 + 24 + 24 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct ControlBuffer([u8; 192]);

/// Bytes of a [`ControlBuffer`].
pub(super) const CONTROL_LEN: usize = size_of::<ControlBuffer>();

/// Alignment of control messages in bytes.
pub(super) const CONTROL_ALIGN: usize = align_of::<cmsghdr>();

impl ControlBuffer {
    pub(super) const EMPTY: Self = Self([0; 192]);
}

/// Values in the control messages of one message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ControlValues {
    /// ECN codepoint, the two bits of the IP header.
    pub(super) ecn: u8,
    /// Local address at which a received datagram arrived, or from which a datagram is to leave; never IPv4-mapped.
    pub(super) local: Option<IpAddr>,
    /// Index of the interface at which `local` is an IPv6 address; 0 if the kernel is to choose, or `local` is IPv4.
    pub(super) interface: u32,
    /// Bytes of each datagram but the last, if the message has several.
    pub(super) segment: Option<u16>,
}

impl ControlValues {
    /// Reads the values in the control messages of `header`. Messages of other kinds, or of an unknown length, are
    /// skipped.
    ///
    /// # Safety
    ///
    /// `msg_control` and `msg_controllen` of `header` must describe a [`ControlBuffer`], or memory with the same
    /// alignment, or be null and 0: the first `msg_controllen` bytes are read.
    pub(super) unsafe fn read_control(header: &msghdr) -> Self {
        let mut said = Self::default();
        // SAFETY: cmsg(3): CMSG_FIRSTHDR and CMSG_NXTHDR return only headers that lie within msg_controllen, which the
        // caller guarantees.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
        while !next.is_null() {
            // SAFETY: cmsg(3): CMSG_FIRSTHDR and CMSG_NXTHDR point to a header within the buffer, which is aligned.
            let message = unsafe { next.read() };
            // SAFETY: cmsg(3): CMSG_DATA follows the header; CMSG_LEN(0) is what the header itself takes of cmsg_len.
            // Each value is read only if cmsg_len says that all of it is there, unaligned, as cmsg(3) asks for.
            unsafe {
                let data = libc::CMSG_DATA(next);
                let len = from_cmsg_length(message.cmsg_len).saturating_sub(libc::CMSG_LEN(0) as usize);
                match (message.cmsg_level, message.cmsg_type) {
                    (libc::IPPROTO_IP, libc::IP_TOS) if len >= 1 => said.ecn = data.read() & ECN_MASK,
                    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                        let class: Option<c_int> = read_control_value(data, len);
                        said.ecn = class.and_then(|class| u8::try_from(class).ok()).unwrap_or(0) & ECN_MASK;
                    }
                    (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                        let info: Option<in_pktinfo> = read_control_value(data, len);
                        said.local = info.map(|info| Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                    }
                    (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if said.local.is_none() => {
                        let info: Option<in6_pktinfo> = read_control_value(data, len);
                        said.local = info.map(|info| Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical());
                        said.interface = info.map_or(0, |info| info.ipi6_ifindex);
                    }
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let segment: Option<c_int> = read_control_value(data, len);
                        said.segment = segment.and_then(|segment| u16::try_from(segment).ok()).filter(|s| *s > 0);
                    }
                    _ => {}
                }
            }
            // SAFETY: cmsg(3): as CMSG_FIRSTHDR.
            next = unsafe { libc::CMSG_NXTHDR(header, next) };
        }
        said
    }

    /// Reads the values in `control`, which the kernel wrote among other bytes. No value if `control` is not aligned to
    /// [`CONTROL_ALIGN`].
    pub(super) fn read_control_slice(control: &[u8]) -> Self {
        if !control.as_ptr().cast::<cmsghdr>().is_aligned() {
            return Self::default();
        }
        // SAFETY: sendmsg(2): a msghdr is integers and pointers, for which zero is a value.
        let mut header: msghdr = unsafe { zeroed() };
        header.msg_control = control.as_ptr().cast_mut().cast();
        header.msg_controllen = to_cmsg_length(control.len());
        // SAFETY: cmsg(3): as many bytes can be read there, are borrowed for the call, and are aligned.
        unsafe { Self::read_control(&header) }
    }

    /// Writes the values into `control`, for a message to an address that `is_v4`, and makes `header` point there.
    pub(super) fn write_control(&self, is_v4: bool, header: &mut msghdr, control: &mut ControlBuffer) {
        header.msg_control = ptr::null_mut();
        header.msg_controllen = 0;
        let ecn = c_int::from(self.ecn);
        let mut writer = ControlWriter { control, used: 0 };
        if self.ecn != 0 {
            let (level, kind) =
                if is_v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
            writer.push_control(level, kind, ecn);
        }
        match self.local {
            Some(IpAddr::V4(ip)) => {
                let s_addr = u32::from_ne_bytes(ip.octets());
                let (unset, ipi_spec_dst) = (libc::in_addr { s_addr: 0 }, libc::in_addr { s_addr });
                writer.push_control(
                    libc::IPPROTO_IP,
                    libc::IP_PKTINFO,
                    in_pktinfo { ipi_ifindex: 0, ipi_spec_dst, ipi_addr: unset },
                );
            }
            Some(IpAddr::V6(ip)) => {
                let ipi6_addr = libc::in6_addr { s6_addr: ip.octets() };
                let info = in6_pktinfo { ipi6_addr, ipi6_ifindex: self.interface };
                writer.push_control(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            None => {}
        }
        if let Some(segment) = self.segment {
            writer.push_control(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
        }
        if writer.used > 0 {
            header.msg_controllen = to_cmsg_length(writer.used);
            header.msg_control = ptr::from_mut(control).cast::<c_void>();
        }
    }
}

/// Reads a value at `data`; `None` if the `len` bytes are less than a `T`.
///
/// # Safety
///
/// `len` bytes can be read at `data`, and any bytes are a valid `T`.
unsafe fn read_control_value<T: Copy>(data: *const u8, len: usize) -> Option<T> {
    // SAFETY: cmsg(3): the value may stand unaligned; the caller guarantees the length.
    (len >= size_of::<T>()).then(|| unsafe { data.cast::<T>().read_unaligned() })
}

/// Converts `bytes` to a length in msghdr or cmsghdr: usize in the kernel and in glibc; socklen_t, with padding behind,
/// in POSIX and musl. The bytes of a [`ControlBuffer`] fit into both; for more, nothing would be read or sent.
pub(super) fn to_cmsg_length<T: TryFrom<usize> + Default>(bytes: usize) -> T {
    T::try_from(bytes).unwrap_or_default()
}

/// Converts a length in msghdr or cmsghdr to bytes.
fn from_cmsg_length<T: TryInto<usize>>(length: T) -> usize {
    length.try_into().unwrap_or(0)
}

struct ControlWriter<'a> {
    control: &'a mut ControlBuffer,
    used: usize,
}

impl ControlWriter<'_> {
    /// Appends a control message, or nothing if the buffer has no room, which the size of [`ControlBuffer`] rules out.
    #[expect(clippy::cast_possible_truncation, reason = "values of 20 bytes at most")]
    fn push_control<T: Copy>(&mut self, level: c_int, kind: c_int, value: T) {
        // SAFETY: cmsg(3): CMSG_LEN and CMSG_SPACE only calculate.
        let (len, space) = unsafe {
            (libc::CMSG_LEN(size_of::<T>() as u32) as usize, libc::CMSG_SPACE(size_of::<T>() as u32) as usize)
        };
        let Some(room) = self.control.0.get_mut(self.used..self.used + space) else { return };
        // SAFETY: cmsg(3): a cmsghdr is integers, for which zero is a value. The kernel reads musl's padding with
        // cmsg_len.
        let mut header: cmsghdr = unsafe { zeroed() };
        header.cmsg_len = to_cmsg_length(len);
        header.cmsg_level = level;
        header.cmsg_type = kind;
        // SAFETY: cmsg(3): a header, then, CMSG_LEN(0) behind it, the value; `room` holds CMSG_SPACE of it. Both writes
        // are unaligned ones, though `used` is a sum of CMSG_SPACEs and so aligned.
        unsafe {
            room.as_mut_ptr().cast::<cmsghdr>().write_unaligned(header);
            room.as_mut_ptr().add(libc::CMSG_LEN(0) as usize).cast::<T>().write_unaligned(value);
        }
        self.used += space;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(said: ControlValues, is_v4: bool) -> (ControlValues, usize) {
        // SAFETY: sendmsg(2): a msghdr is integers and pointers, for which zero is a value.
        let mut header: msghdr = unsafe { zeroed() };
        let mut control = ControlBuffer::EMPTY;
        said.write_control(is_v4, &mut header, &mut control);
        // SAFETY: sendmsg(2): `write` has set both fields to a part of `control`.
        (unsafe { ControlValues::read_control(&header) }, from_cmsg_length(header.msg_controllen))
    }

    #[test]
    fn control_messages_are_read_as_they_were_written() {
        for ecn in 0..4 {
            let v4 = ControlValues { ecn, local: Some([192, 0, 2, 1].into()), ..ControlValues::default() };
            assert_eq!(round_trip(v4, true).0.ecn, ecn);
            let v6 = ControlValues { ecn, local: Some("fe80::1".parse().unwrap()), interface: 7, segment: None };
            assert_eq!(round_trip(v6, false).0, v6);
        }
    }

    #[test]
    fn a_datagram_without_options_has_no_control_message() {
        assert_eq!(round_trip(ControlValues::default(), true), (ControlValues::default(), 0));
    }

    #[test]
    fn all_control_messages_fit_at_once() {
        let local = Some(Ipv6Addr::LOCALHOST.into());
        let said = ControlValues { ecn: 3, local, interface: 1, segment: Some(1200) };
        let (_, len) = round_trip(said, false);
        // SAFETY: cmsg(3): CMSG_SPACE only calculates.
        let expected = unsafe { libc::CMSG_SPACE(4) + libc::CMSG_SPACE(20) + libc::CMSG_SPACE(2) };
        assert_eq!(len, expected as usize);
    }

    #[test]
    fn a_truncated_value_is_skipped() {
        let mut control = ControlBuffer::EMPTY;
        let mut writer = ControlWriter { control: &mut control, used: 0 };
        writer.push_control(libc::IPPROTO_IP, libc::IP_PKTINFO, 7_u8);
        writer.push_control(libc::SOL_UDP, libc::UDP_GRO, 1_u16);
        writer.push_control(libc::IPPROTO_IP, libc::IP_TOS, 2_u8);
        let used = writer.used;
        // SAFETY: sendmsg(2): as above.
        let mut header: msghdr = unsafe { zeroed() };
        header.msg_control = ptr::from_mut(&mut control).cast();
        header.msg_controllen = to_cmsg_length(used);
        // SAFETY: sendmsg(2): both fields are those of `control`.
        let said = unsafe { ControlValues::read_control(&header) };
        assert_eq!(said, ControlValues { ecn: 2, ..ControlValues::default() });
    }
}
