//! TUN devices in network namespaces: IP packets, each after a `virtio_net_hdr` that describes what is left to do for
//! checksums and segmentation (Documentation/networking/tuntap.rst, struct virtio_net_hdr of the virtio specification).

use crate::bench::namespace::inside;
use anyhow::{Context as _, Result};
use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt as _,
    },
};

/// Bytes of a `virtio_net_hdr` before each packet.
pub(super) const HEADER: usize = 10;
/// The largest packet with its header.
pub(super) const LARGEST: usize = HEADER + 65_535;

/// A device and its descriptor; the kernel removes it when it is dropped.
#[derive(Debug)]
pub(super) struct Tun {
    file: File,
    /// Its name, unique in its namespace.
    pub(super) name: String,
    namespace: String,
}

impl Tun {
    /// Makes a device in a named namespace. With `super_packets` the kernel leaves segmentation of TCP and UDP over
    /// IPv4 to the reader; checksums it leaves always: they need not be computed where nothing can corrupt.
    pub(super) fn new(namespace: &str, name: &str, super_packets: bool) -> Result<Self> {
        let file = inside(namespace, || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(nix::libc::O_NONBLOCK)
                .open("/dev/net/tun")
                .context("cannot open /dev/net/tun")?;
            sys::attach(&file, name).with_context(|| format!("cannot make the TUN device {name}"))?;
            sys::offload(&file, super_packets).with_context(|| format!("cannot set offloads of {name}"))?;
            Ok(file)
        })?;
        Ok(Self { file, name: name.to_owned(), namespace: namespace.to_owned() })
    }

    /// The next packet with its header, if there is one.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", self.name)),
        }
    }

    /// Hands a packet with its header to the kernel; whether it took it.
    pub(super) fn send(&self, frame: &[u8]) -> bool {
        (&self.file).write(frame).is_ok_and(|written| written == frame.len())
    }

    /// Packets that the device dropped because they were not read in time.
    pub(super) fn dropped(&self) -> Result<u64> {
        let text = inside(&self.namespace, || Ok(fs::read_to_string("/proc/thread-self/net/dev")?))?;
        transmit_drops(&text, &self.name).with_context(|| format!("/proc/net/dev has no {}", self.name))
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A device's line of /proc/net/dev: eight numbers of what was received, then packets and bytes sent, errors, drops.
fn transmit_drops(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

mod sys {
    //! The two requests that set a TUN device up.
    #![expect(unsafe_code, reason = "no crate has TUNSETOFFLOAD with checksums alone behind a safe interface")]

    use nix::libc::{self, IFNAMSIZ, c_char, c_short};
    use std::{fs::File, io, os::fd::AsRawFd as _};

    /// Makes the device and attaches the descriptor to it.
    pub(super) fn attach(file: &File, name: &str) -> io::Result<()> {
        let mut ifr_name: [c_char; IFNAMSIZ] = [0; IFNAMSIZ];
        if name.len() >= IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        #[expect(clippy::cast_possible_truncation, reason = "the flags are those of a short, as struct ifreq has it")]
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_flags: flags as c_short };
        let request = libc::ifreq { ifr_name, ifr_ifru };
        // SAFETY: TUNSETIFF reads a struct ifreq (tuntap.rst), which exists until the call returns.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw const request) })
    }

    /// Sets what the reader of the device can do for the kernel.
    pub(super) fn offload(file: &File, super_packets: bool) -> io::Result<()> {
        let all = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_USO4 | libc::TUN_F_TSO6 | libc::TUN_F_USO6;
        let features = if super_packets { all } else { libc::TUN_F_CSUM };
        // SAFETY: TUNSETOFFLOAD takes its argument by value (drivers/net/tun.c).
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(features)) })
    }

    fn check(result: libc::c_int) -> io::Result<()> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_the_twelfth_number_of_a_devices_line() {
        let text = "Inter-|   Receive\n face |bytes\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n\
                    path0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n";
        assert_eq!(transmit_drops(text, "path0"), Some(12));
        assert_eq!(transmit_drops(text, "path"), None);
    }
}
