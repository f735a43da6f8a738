#!/bin/sh
# Makes the video of `viewers`: a test picture with grain, in the qualities of LADDER (kbit/s), with a constant bitrate, so that each
# segment of a quality has the same size; segments of two seconds, as a DASH presentation without sound.
# usage: video.sh FOLDER [SECONDS]
# Needs ffmpeg with libx264.
set -eu
folder=$1
seconds=${2:-120}
ladder=${LADDER:-100 500 1000 2000 3000 4000 5000}

mkdir -p "$folder"
# Small, as it is the bytes that matter, and browsers decode it beside the load. A key frame opens each segment.
set -- -hide_banner -loglevel warning -nostdin -y \
    -f lavfi -i "testsrc2=size=320x180:rate=25,noise=alls=40:allf=t,format=yuv420p" -t "$seconds"
for _ in $ladder; do
    set -- "$@" -map 0:v
done
set -- "$@" -c:v libx264 -preset ultrafast -profile:v main -g 50 -keyint_min 50 -sc_threshold 0
nth=0
for bitrate in $ladder; do
    # Filler data make up what the picture does not need (nal-hrd=cbr).
    set -- "$@" "-b:v:$nth" "${bitrate}k" "-minrate:v:$nth" "${bitrate}k" "-maxrate:v:$nth" "${bitrate}k" \
        "-bufsize:v:$nth" "${bitrate}k" "-x264-params:v:$nth" "nal-hrd=cbr:force-cfr=1"
    nth=$((nth + 1))
done
# shellcheck disable=SC2016 # ffmpeg's own names
ffmpeg "$@" -f dash -seg_duration 2 -use_template 1 -use_timeline 0 \
    -init_seg_name 'init-$RepresentationID$.mp4' -media_seg_name 'segment-$RepresentationID$-$Number%05d$.m4s' \
    -adaptation_sets "id=0,streams=v" "$folder/video.mpd"
