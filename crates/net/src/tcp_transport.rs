//! Reports the kernel's measurements of a TCP connection's path.

use super::sys;
use litequic_telemetry::clients::TransportReport;
use std::{os::fd::RawFd, time::Duration};

/// The kernel's measurements of the path of a TCP connection; no values if the descriptor is not a connected TCP
/// socket.
pub fn tcp_transport(socket: RawFd) -> TransportReport {
    let Ok(info) = sys::tcp_info(socket) else { return TransportReport::default() };
    let segments = |count: u32| u64::from(count).saturating_mul(info.tcpi_snd_mss.into());
    TransportReport {
        rtt: (info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into())),
        congestion_window: Some(segments(info.tcpi_snd_cwnd)),
        bytes_in_flight: Some(segments(info.tcpi_unacked)),
        ..TransportReport::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        os::fd::AsRawFd,
    };

    #[test]
    fn a_tcp_socket_reports_round_trip_and_window_a_file_neither() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        let report = tcp_transport(server.as_raw_fd());
        assert!(report.rtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{report:?}");
        assert!(report.congestion_window.is_some_and(|window| window > 500), "{report:?}");
        assert_eq!((report.packets_lost, report.acks), (None, None));
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(tcp_transport(file.as_raw_fd()), TransportReport::default());
        assert_eq!(tcp_transport(-1), TransportReport::default());
    }
}
