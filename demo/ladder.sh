#!/bin/sh
# Makes the video: a test picture with a clock and sound, in four qualities, as a DASH presentation with segments of two
# seconds. Nothing is downloaded. usage: ladder.sh FOLDER [SECONDS]
set -eu
folder=$1
seconds=${2:-60}

mkdir -p "$folder"
# Grain is what a test picture lacks: without it every quality would be a few kilobytes. A key frame opens each segment,
# in every quality alike, so that a player can change between them.
# shellcheck disable=SC2016 # ffmpeg's own names
ffmpeg -hide_banner -loglevel warning -nostdin -y \
    -f lavfi -i "testsrc2=size=1280x720:rate=25,noise=alls=14:allf=t,format=yuv420p" \
    -f lavfi -i "sine=frequency=220:beep_factor=4:sample_rate=48000,volume=0.2" \
    -t "$seconds" \
    -filter_complex "[0:v]split=4[a][b][c][d];[a]scale=320:180[v0];[b]scale=640:360[v1];[c]scale=960:540[v2];[d]null[v3]" \
    -map "[v0]" -map "[v1]" -map "[v2]" -map "[v3]" -map 1:a \
    -c:v libx264 -preset ultrafast -profile:v main -g 50 -keyint_min 50 -sc_threshold 0 \
    -b:v:0 400k -maxrate:v:0 440k -bufsize:v:0 800k \
    -b:v:1 1200k -maxrate:v:1 1320k -bufsize:v:1 2400k \
    -b:v:2 3000k -maxrate:v:2 3300k -bufsize:v:2 6000k \
    -b:v:3 6000k -maxrate:v:3 6600k -bufsize:v:3 12000k \
    -c:a aac -b:a 96k \
    -f dash -seg_duration 2 -use_template 1 -use_timeline 0 \
    -init_seg_name 'init-$RepresentationID$.mp4' -media_seg_name 'segment-$RepresentationID$-$Number%05d$.m4s' \
    -adaptation_sets "id=0,streams=v id=1,streams=a" \
    "$folder/video.mpd"
