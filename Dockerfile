# A broker in a container: small, not root, one volume.
#
#     docker build --tag sharegroup .
#     docker run --publish 127.0.0.1:9092:9092 --volume sharegroup:/data sharegroup
#
# Clients connect to the name that the broker tells them: localhost unless another is given by
# --env SHAREGROUP_HOST=...  The broker is open, and its log says so: publishing on 127.0.0.1 alone
# keeps the unprotected port on this machine.  A mounted /etc/sharegroup/server.properties (or the
# file that SHAREGROUP_CONFIG names) secures it: docs/security.md, "In a container".  The health check
# reads the same settings and needs no user.  With the environment of Apache Kafka's image
# (KAFKA_LISTENERS, ...) the broker is configured by that, so a compose file works with this image in
# its place.  Any other command of `sharegroup` runs too: docker run sharegroup groups list --help

FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/sharegroup \
    && /opt/sharegroup/bin/pip install --no-cache-dir --disable-pip-version-check \
        --constraint constraints.txt . \
    && /opt/sharegroup/bin/pip uninstall --yes --quiet pip \
    && /opt/sharegroup/bin/python -m compileall -q /opt/sharegroup/lib

FROM python:3.12-slim
# Group 0 may write to /data too: Kubernetes and OpenShift run images with users of their own in it.
RUN useradd --uid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin sharegroup \
    && install --directory --owner sharegroup --group root --mode 0770 /data
COPY --from=build /opt/sharegroup /opt/sharegroup
COPY container/entry /usr/local/bin/sharegroup-entry
COPY container/health.py /usr/local/lib/sharegroup-health.py
ENV PATH="/opt/sharegroup/bin:$PATH" PYTHONUNBUFFERED=1 SHAREGROUP_HOST=localhost
USER sharegroup
WORKDIR /data
VOLUME /data
EXPOSE 9092
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s \
    CMD ["python", "/usr/local/lib/sharegroup-health.py"]
ENTRYPOINT ["sharegroup-entry"]
CMD ["broker"]
