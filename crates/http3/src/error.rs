//! The error codes that HTTP/3 and QPACK put into STOP_SENDING, RESET_STREAM and CONNECTION_CLOSE frames.

use s2n_quic::application;
use std::fmt;

/// Why a stream or a connection ends (RFC 9114 §8.1, RFC 9204 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Nothing is wrong.
    NoError = 0x100,
    /// A violation without a code of its own.
    GeneralProtocolError = 0x101,
    /// litequic is at fault.
    InternalError = 0x102,
    /// A stream that the peer may not open.
    StreamCreationError = 0x103,
    /// The control stream or a QPACK stream ended.
    ClosedCriticalStream = 0x104,
    /// A frame that is not allowed here or now.
    FrameUnexpected = 0x105,
    /// A frame whose layout or size is wrong.
    FrameError = 0x106,
    /// The peer generates excessive load.
    ExcessiveLoad = 0x107,
    /// A stream or push ID that was used wrongly.
    IdError = 0x108,
    /// A SETTINGS frame whose content is wrong.
    SettingsError = 0x109,
    /// The control stream did not begin with SETTINGS.
    MissingSettings = 0x10a,
    /// A request that was not processed at all: the client may send it again.
    RequestRejected = 0x10b,
    /// A request or response that is no longer wanted.
    RequestCancelled = 0x10c,
    /// The client's stream ended before its request did.
    RequestIncomplete = 0x10d,
    /// A malformed message (RFC 9114 §4.1.2).
    MessageError = 0x10e,
    /// The TCP connection behind a CONNECT was reset.
    ConnectError = 0x10f,
    /// To be retried over HTTP/1.1.
    VersionFallback = 0x110,
    /// A field section that cannot be read.
    QpackDecompressionFailed = 0x200,
    /// The QPACK encoder stream cannot be read.
    QpackEncoderStreamError = 0x201,
    /// The QPACK decoder stream cannot be read.
    QpackDecoderStreamError = 0x202,
}

/// H3_DATAGRAM_ERROR (RFC 9297 §5.2), which litequic never sends.
const DATAGRAM_ERROR: u64 = 0x33;

/// Every code that has a name.
const ALL: [Code; 20] = [
    Code::NoError,
    Code::GeneralProtocolError,
    Code::InternalError,
    Code::StreamCreationError,
    Code::ClosedCriticalStream,
    Code::FrameUnexpected,
    Code::FrameError,
    Code::ExcessiveLoad,
    Code::IdError,
    Code::SettingsError,
    Code::MissingSettings,
    Code::RequestRejected,
    Code::RequestCancelled,
    Code::RequestIncomplete,
    Code::MessageError,
    Code::ConnectError,
    Code::VersionFallback,
    Code::QpackDecompressionFailed,
    Code::QpackEncoderStreamError,
    Code::QpackDecoderStreamError,
];

impl Code {
    /// The name of a peer's `code`, with its number: `H3_NO_ERROR (0x100)`.
    pub fn describe(code: u64) -> String {
        let known = ALL.into_iter().find(|known| known.value() == code);
        known.map_or_else(|| format!("the code {code:#x}"), |known| format!("{known} ({code:#x})"))
    }

    /// The code as it is encoded.
    pub const fn value(self) -> u64 {
        self as u64
    }

    /// Whether a peer's `code` reports an error. An unknown one is equivalent to H3_NO_ERROR (RFC 9114 §9).
    pub const fn is_error(code: u64) -> bool {
        let http3 = code > Self::NoError as u64 && code <= Self::VersionFallback as u64;
        let qpack = code >= Self::QpackDecompressionFailed as u64 && code <= Self::QpackDecoderStreamError as u64;
        http3 || qpack || code == DATAGRAM_ERROR
    }

    /// True if it ends the stream it happened on, false if it is a connection error.
    pub const fn ends_only_the_stream(self) -> bool {
        matches!(
            self,
            Self::NoError
                | Self::RequestRejected
                | Self::RequestCancelled
                | Self::RequestIncomplete
                | Self::MessageError
                | Self::ConnectError
                | Self::VersionFallback
        )
    }

    /// The RFC's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoError => "H3_NO_ERROR",
            Self::GeneralProtocolError => "H3_GENERAL_PROTOCOL_ERROR",
            Self::InternalError => "H3_INTERNAL_ERROR",
            Self::StreamCreationError => "H3_STREAM_CREATION_ERROR",
            Self::ClosedCriticalStream => "H3_CLOSED_CRITICAL_STREAM",
            Self::FrameUnexpected => "H3_FRAME_UNEXPECTED",
            Self::FrameError => "H3_FRAME_ERROR",
            Self::ExcessiveLoad => "H3_EXCESSIVE_LOAD",
            Self::IdError => "H3_ID_ERROR",
            Self::SettingsError => "H3_SETTINGS_ERROR",
            Self::MissingSettings => "H3_MISSING_SETTINGS",
            Self::RequestRejected => "H3_REQUEST_REJECTED",
            Self::RequestCancelled => "H3_REQUEST_CANCELLED",
            Self::RequestIncomplete => "H3_REQUEST_INCOMPLETE",
            Self::MessageError => "H3_MESSAGE_ERROR",
            Self::ConnectError => "H3_CONNECT_ERROR",
            Self::VersionFallback => "H3_VERSION_FALLBACK",
            Self::QpackDecompressionFailed => "QPACK_DECOMPRESSION_FAILED",
            Self::QpackEncoderStreamError => "QPACK_ENCODER_STREAM_ERROR",
            Self::QpackDecoderStreamError => "QPACK_DECODER_STREAM_ERROR",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Code {}

/// An HTTP/3 code as s2n-quic takes it.
pub(super) fn application_error(code: Code) -> application::Error {
    application::Error::new(code.value()).unwrap_or(application::Error::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_values_and_names_of_the_rfcs() {
        let table = [
            (Code::NoError, 0x100, "H3_NO_ERROR"),
            (Code::InternalError, 0x102, "H3_INTERNAL_ERROR"),
            (Code::FrameUnexpected, 0x105, "H3_FRAME_UNEXPECTED"),
            (Code::FrameError, 0x106, "H3_FRAME_ERROR"),
            (Code::ExcessiveLoad, 0x107, "H3_EXCESSIVE_LOAD"),
            (Code::IdError, 0x108, "H3_ID_ERROR"),
            (Code::SettingsError, 0x109, "H3_SETTINGS_ERROR"),
            (Code::MissingSettings, 0x10a, "H3_MISSING_SETTINGS"),
            (Code::RequestRejected, 0x10b, "H3_REQUEST_REJECTED"),
            (Code::RequestCancelled, 0x10c, "H3_REQUEST_CANCELLED"),
            (Code::RequestIncomplete, 0x10d, "H3_REQUEST_INCOMPLETE"),
            (Code::MessageError, 0x10e, "H3_MESSAGE_ERROR"),
            (Code::VersionFallback, 0x110, "H3_VERSION_FALLBACK"),
            (Code::QpackDecompressionFailed, 0x200, "QPACK_DECOMPRESSION_FAILED"),
            (Code::QpackDecoderStreamError, 0x202, "QPACK_DECODER_STREAM_ERROR"),
        ];
        for (code, value, name) in table {
            assert_eq!((code.value(), code.to_string().as_str()), (value, name));
            assert_eq!(Code::describe(value), format!("{name} ({value:#x})"));
        }
        assert_eq!(Code::describe(0x33), "the code 0x33");
    }

    #[test]
    fn unknown_codes_are_treated_as_no_error() {
        for code in [0x101, 0x10c, 0x110, 0x200, 0x202, 0x33] {
            assert!(Code::is_error(code), "{code:#x}");
        }
        for code in [0, 1, 0x21, 0xff, 0x100, 0x111, 0x1ff, 0x203, u64::MAX] {
            assert!(!Code::is_error(code), "{code:#x}");
        }
    }

    #[test]
    fn a_malformed_message_ends_its_stream_and_a_bad_frame_the_connection() {
        assert!(Code::MessageError.ends_only_the_stream());
        assert!(!Code::FrameUnexpected.ends_only_the_stream());
        assert!(!Code::QpackDecompressionFailed.ends_only_the_stream());
    }
}
