FROM python:3.11-slim-bookworm AS digits
COPY dev /tmp/checkout/dev
RUN cd /tmp/checkout \
 && pip install --no-cache-dir $(python -m dev.compose.digits packages) \
 && rm -r /tmp/checkout
COPY dev/images/digits /opt/digits

FROM python:3.11-slim-bookworm
COPY --from=digits / /digits
COPY dev /checkout/dev
RUN cd /checkout \
 && tar --create --file /layer.tar --directory /digits . \
 && python -m dev.compose.digits write /layer.tar /digits.tar \
 && rm -r /digits /layer.tar
CMD ["cp", "/digits.tar", "/images/"]
