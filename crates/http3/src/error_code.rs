//! Defines the error codes of HTTP/3 and QPACK, for STOP_SENDING, RESET_STREAM and CONNECTION_CLOSE frames.

use litequic_base::named_enum;
use s2n_quic::application;
use std::fmt;

named_enum! {
    /// The reason why a stream or a connection ends (RFC 9114 §8.1, RFC 9204 §6).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ErrorCode {
        /// No error.
        NoError(0x100) = "H3_NO_ERROR",
        /// A violation that has no specific code.
        GeneralProtocolError(0x101) = "H3_GENERAL_PROTOCOL_ERROR",
        /// An internal failure of litequic.
        InternalError(0x102) = "H3_INTERNAL_ERROR",
        /// A stream that the peer may not open.
        StreamCreationError(0x103) = "H3_STREAM_CREATION_ERROR",
        /// The control stream or a QPACK stream was closed.
        ClosedCriticalStream(0x104) = "H3_CLOSED_CRITICAL_STREAM",
        /// A frame that is not allowed here or now.
        FrameUnexpected(0x105) = "H3_FRAME_UNEXPECTED",
        /// A frame whose layout or size is wrong.
        FrameError(0x106) = "H3_FRAME_ERROR",
        /// The peer generates excessive load.
        ExcessiveLoad(0x107) = "H3_EXCESSIVE_LOAD",
        /// A wrong use of a stream ID or push ID.
        IdError(0x108) = "H3_ID_ERROR",
        /// A SETTINGS frame whose content is wrong.
        SettingsError(0x109) = "H3_SETTINGS_ERROR",
        /// The control stream did not begin with SETTINGS.
        MissingSettings(0x10a) = "H3_MISSING_SETTINGS",
        /// The request was not processed at all, so that the client may send it again.
        RequestRejected(0x10b) = "H3_REQUEST_REJECTED",
        /// The request or response is no longer wanted.
        RequestCancelled(0x10c) = "H3_REQUEST_CANCELLED",
        /// The client's stream ended before its request did.
        RequestIncomplete(0x10d) = "H3_REQUEST_INCOMPLETE",
        /// A malformed message (RFC 9114 §4.1.2).
        MessageError(0x10e) = "H3_MESSAGE_ERROR",
        /// The TCP connection behind a CONNECT was reset.
        ConnectError(0x10f) = "H3_CONNECT_ERROR",
        /// The request is to be retried over HTTP/1.1.
        VersionFallback(0x110) = "H3_VERSION_FALLBACK",
        /// A field section that cannot be read.
        QpackDecompressionFailed(0x200) = "QPACK_DECOMPRESSION_FAILED",
        /// The QPACK encoder stream cannot be read.
        QpackEncoderStreamError(0x201) = "QPACK_ENCODER_STREAM_ERROR",
        /// The QPACK decoder stream cannot be read.
        QpackDecoderStreamError(0x202) = "QPACK_DECODER_STREAM_ERROR",
    }
    /// Returns the code's name in the RFC.
    fn rfc_name;
}

/// H3_DATAGRAM_ERROR (RFC 9297 §5.2), which litequic never sends.
const DATAGRAM_ERROR: u64 = 0x33;

impl ErrorCode {
    /// Returns a peer's `code` with its name: `H3_NO_ERROR (0x100)`.
    pub fn describe_code(code: u64) -> String {
        let known = Self::NAMES.iter().find(|(_, known)| known.wire_value() == code);
        known.map_or_else(|| format!("the code {code:#x}"), |(name, _)| format!("{name} ({code:#x})"))
    }

    /// Returns the number of the code.
    pub const fn wire_value(self) -> u64 {
        self as u64
    }

    /// Whether a peer's `code` reports an error. An unknown code is equivalent to H3_NO_ERROR (RFC 9114 §9).
    pub const fn is_error_code(code: u64) -> bool {
        let http3 = code > Self::NoError as u64 && code <= Self::VersionFallback as u64;
        let qpack = code >= Self::QpackDecompressionFailed as u64 && code <= Self::QpackDecoderStreamError as u64;
        http3 || qpack || code == DATAGRAM_ERROR
    }

    /// Whether the error ends its stream alone, and not the connection.
    pub const fn is_stream_error(self) -> bool {
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
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rfc_name())
    }
}

impl std::error::Error for ErrorCode {}

/// Converts `code` for s2n-quic.
pub(super) fn to_application_error(code: ErrorCode) -> application::Error {
    application::Error::new(code.wire_value()).unwrap_or(application::Error::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_values_and_names_of_the_rfcs() {
        let table = [
            (ErrorCode::NoError, 0x100, "H3_NO_ERROR"),
            (ErrorCode::InternalError, 0x102, "H3_INTERNAL_ERROR"),
            (ErrorCode::FrameUnexpected, 0x105, "H3_FRAME_UNEXPECTED"),
            (ErrorCode::FrameError, 0x106, "H3_FRAME_ERROR"),
            (ErrorCode::ExcessiveLoad, 0x107, "H3_EXCESSIVE_LOAD"),
            (ErrorCode::IdError, 0x108, "H3_ID_ERROR"),
            (ErrorCode::SettingsError, 0x109, "H3_SETTINGS_ERROR"),
            (ErrorCode::MissingSettings, 0x10a, "H3_MISSING_SETTINGS"),
            (ErrorCode::RequestRejected, 0x10b, "H3_REQUEST_REJECTED"),
            (ErrorCode::RequestCancelled, 0x10c, "H3_REQUEST_CANCELLED"),
            (ErrorCode::RequestIncomplete, 0x10d, "H3_REQUEST_INCOMPLETE"),
            (ErrorCode::MessageError, 0x10e, "H3_MESSAGE_ERROR"),
            (ErrorCode::VersionFallback, 0x110, "H3_VERSION_FALLBACK"),
            (ErrorCode::QpackDecompressionFailed, 0x200, "QPACK_DECOMPRESSION_FAILED"),
            (ErrorCode::QpackDecoderStreamError, 0x202, "QPACK_DECODER_STREAM_ERROR"),
        ];
        for (code, value, name) in table {
            assert_eq!((code.wire_value(), code.to_string().as_str()), (value, name));
            assert_eq!(ErrorCode::describe_code(value), format!("{name} ({value:#x})"));
        }
        assert_eq!(ErrorCode::describe_code(0x33), "the code 0x33");
    }

    #[test]
    fn unknown_codes_are_treated_as_no_error() {
        for code in [0x101, 0x10c, 0x110, 0x200, 0x202, 0x33] {
            assert!(ErrorCode::is_error_code(code), "{code:#x}");
        }
        for code in [0, 1, 0x21, 0xff, 0x100, 0x111, 0x1ff, 0x203, u64::MAX] {
            assert!(!ErrorCode::is_error_code(code), "{code:#x}");
        }
    }

    #[test]
    fn a_malformed_message_ends_its_stream_and_a_bad_frame_the_connection() {
        assert!(ErrorCode::MessageError.is_stream_error());
        assert!(!ErrorCode::FrameUnexpected.is_stream_error());
        assert!(!ErrorCode::QpackDecompressionFailed.is_stream_error());
    }
}
